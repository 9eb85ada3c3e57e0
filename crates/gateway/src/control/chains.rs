//! Finds chains that drop packets by default in the output of `nft list ruleset`.

/// The hook of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    Prerouting,
    Input,
    Forward,
}

/// A chain that drops packets that no rule accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dropping {
    /// Table and chain, as nft names them.
    pub(super) name: String,
    pub(super) hook: Hook,
    v4: bool,
    v6: bool,
}

impl Dropping {
    /// Whether the chain sees packets of a family.
    pub(super) fn sees(&self, v6: bool) -> bool {
        if v6 { self.v6 } else { self.v4 }
    }
}

/// Finds chains with the policy `drop`, and chains whose last rule drops or rejects all packets.
pub(super) fn dropping(listed: &str) -> Vec<Dropping> {
    let (mut table, mut chain, mut found) = ("", "", Vec::new());
    let mut base: Option<(Hook, bool)> = None;
    let mut last = "";
    for line in listed.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("table ").and_then(|rest| rest.strip_suffix(" {")) {
            table = name;
        } else if let Some(name) =
            line.strip_prefix("chain ").and_then(|rest| rest.strip_suffix(" {"))
        {
            (chain, base, last) = (name, None, "");
        } else if line.starts_with("type ") && line.contains(" hook ") {
            base = hook(line).map(|hook| (hook, line.contains("policy drop")));
        } else if line == "}" {
            let family = table.split(' ').next().unwrap_or("");
            let [v4, v6] = ["ip", "ip6"].map(|own| family == own || family == "inet");
            if let Some((hook, drops)) = base.take()
                && (drops || is_bare_drop(last))
                && (v4 || v6)
            {
                found.push(Dropping { name: format!("`{table} {chain}`"), hook, v4, v6 });
            }
        } else {
            last = line;
        }
    }
    found
}

fn hook(line: &str) -> Option<Hook> {
    match line.split(" hook ").nth(1)?.split(' ').next()? {
        "prerouting" => Some(Hook::Prerouting),
        "input" => Some(Hook::Input),
        "forward" => Some(Hook::Forward),
        _ => None,
    }
}

/// Whether a rule drops all packets.
fn is_bare_drop(rule: &str) -> bool {
    let mut words = rule.split(' ').peekable();
    if words.next_if_eq(&"counter").is_some() {
        let numbers = ["packets", "bytes"];
        while words.next_if(|word| numbers.contains(word)).is_some() {
            words.next();
        }
    }
    matches!(words.next(), Some("drop" | "reject"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_chains_that_drop_by_default() {
        let chain = |table: &str, name: &str, base: &str, rules: &str| {
            format!(
                "table {table} {{\n\tchain {name} {{\n\t\ttype filter hook {base};\n{rules}\t}}\n}}\n"
            )
        };
        let listed = [
            chain("inet filter", "input", "input priority filter; policy drop", ""),
            chain("inet filter", "output", "output priority filter; policy drop", ""),
            chain("ip other", "in", "input priority 0; policy accept", "\t\ttcp dport 23 drop\n"),
            chain(
                "ip last",
                "in",
                "input priority 0; policy accept",
                "\t\tct state established accept\n\t\tcounter packets 7 bytes 500 drop\n",
            ),
            chain("ip docker", "FORWARD", "forward priority filter; policy drop", ""),
            chain("ip6 raw", "pre", "prerouting priority raw; policy drop", ""),
            chain("bridge b", "in", "input priority 0; policy drop", ""),
            "table ip not {\n\tchain base {\n\t\tdrop\n\t}\n}\n".to_owned(),
        ];
        let found = dropping(&listed.concat());
        let shown: Vec<_> = found
            .iter()
            .map(|one| (one.name.as_str(), one.hook, one.sees(false), one.sees(true)))
            .collect();
        assert_eq!(
            shown,
            [
                ("`inet filter input`", Hook::Input, true, true),
                ("`ip last in`", Hook::Input, true, false),
                ("`ip docker FORWARD`", Hook::Forward, true, false),
                ("`ip6 raw pre`", Hook::Prerouting, false, true),
            ]
        );
    }
}
