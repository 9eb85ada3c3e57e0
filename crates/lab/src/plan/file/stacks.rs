//! The stacks that a plan lists, with their baselines and congestion controls.

use std::collections::BTreeMap;

use toml::Spanned;

use super::{NO_BASELINE, PlanFile, congestion_control, not_in_plan};
use crate::at::{At, at};
use crate::custom::Custom;
use crate::plan::{PlannedStack, braces};
use crate::stack::{Stack, canonical_with};

impl PlanFile {
    pub(super) fn write_out_braces(&mut self) -> Result<(), At> {
        *self.stacks.get_mut() = written_out(self.stacks.get_ref())?;
        let mut baselines = BTreeMap::new();
        for (stack, baseline) in &self.baselines {
            let (stacks, of) = (each(stack)?, each(baseline)?);
            if of.len() != 1 && of.len() != stacks.len() {
                let message =
                    "a list of baselines is as long as that of what is compared with them";
                return Err(at(baseline, message));
            }
            baselines.extend(stacks.into_iter().zip(of.into_iter().cycle()));
        }
        self.baselines = baselines;
        for workload in self.workload.get_mut() {
            if let Some(stacks) = &mut workload.stacks {
                *stacks.get_mut() = written_out(stacks.get_ref())?;
            }
        }
        Ok(())
    }

    pub(super) fn stacks(&self, custom: &Custom) -> Result<Vec<PlannedStack>, At> {
        let canonical = |name: &str| canonical_with(name, custom);
        if self.stacks.get_ref().is_empty() {
            return Err(at(&self.stacks, "the plan has no stack"));
        }
        let mut stacks: Vec<PlannedStack> = Vec::new();
        for name in self.stacks.get_ref() {
            let stack = Stack::parse_with(name.get_ref(), custom);
            let stack = stack.map_err(|message| at(name, message))?;
            if stacks.iter().any(|planned| planned.stack.name == stack.name) {
                return Err(at(
                    name,
                    format!(
                        "`{0}` is listed twice; label one to compare it with itself: `{0}#again`",
                        stack.name
                    ),
                ));
            }
            stacks.push(PlannedStack { stack, baseline: None, congestion_control: None });
        }
        let known = |name: &str| stacks.iter().any(|planned| planned.stack.name == name);
        let mut baselines = BTreeMap::new();
        for (stack, baseline) in &self.baselines {
            let canonical_names = (canonical(stack.get_ref()), canonical(baseline.get_ref()));
            for (name, canonical) in [(stack, &canonical_names.0), (baseline, &canonical_names.1)] {
                let none = baseline.get_ref() == NO_BASELINE && name == baseline;
                if !none && !known(canonical) {
                    return Err(at(name, not_in_plan(canonical, &stacks)));
                }
            }
            if canonical_names.0 == canonical_names.1 {
                return Err(at(
                    baseline,
                    "a stack cannot be its own baseline; list it again with a label (`ftp#again`)",
                ));
            }
            baselines.insert(canonical_names.0, canonical_names.1);
        }
        let defaults: Vec<Option<String>> =
            stacks.iter().map(|p| p.stack.baselines().into_iter().find(|b| known(b))).collect();
        for (planned, default) in stacks.iter_mut().zip(defaults.clone()) {
            let named = baselines.remove(&planned.stack.name);
            planned.baseline = named.or(default).filter(|baseline| baseline != NO_BASELINE);
        }
        for (stack, baseline) in &self.baselines {
            let (name, of) = (canonical(stack.get_ref()), canonical(baseline.get_ref()));
            let chained = stacks.iter().any(|p| p.stack.name == of && p.baseline.is_some());
            // whoever writes what holds anyway, as a record does, changes nothing
            let is_default = stacks
                .iter()
                .zip(&defaults)
                .any(|(p, default)| p.stack.name == name && default.as_ref() == Some(&of));
            if chained && !is_default {
                return Err(at(
                    baseline,
                    format!(
                        "`{of}` has a baseline itself: compare `{name}` with that, or compare `{of}` with \
                         nothing, by `{of:?} = {NO_BASELINE:?}` in [baselines]"
                    ),
                ));
            }
        }
        Ok(stacks)
    }

    /// Gives stacks the congestion control that the plan names for them alone.
    pub(super) fn set_congestion_controls(
        &self,
        stacks: &mut [PlannedStack],
        custom: &Custom,
    ) -> Result<(), At> {
        for (written, chosen) in &self.congestion_controls {
            let name = canonical_with(written.get_ref(), custom);
            let Some(index) = stacks.iter().position(|planned| planned.stack.name == name) else {
                return Err(at(written, not_in_plan(&name, stacks)));
            };
            let planned = &mut stacks[index];
            if !planned.stack.layers.is_empty() {
                let message = format!(
                    "`{name}` has layers, and the congestion control of what is inside them is the plan's: name a \
                     stack without layers, or write `congestion-control` for all"
                );
                return Err(at(written, message));
            }
            if planned.stack.application.over_datagrams() {
                let message = format!("`{name}` does not move its files over TCP");
                return Err(at(written, message));
            }
            planned.congestion_control = congestion_control(Some(chosen))?;
        }
        Ok(())
    }
}

fn written_out(texts: &[Spanned<String>]) -> Result<Vec<Spanned<String>>, At> {
    let all = texts.iter().map(each).collect::<Result<Vec<_>, At>>()?;
    Ok(all.into_iter().flatten().collect())
}

fn each(text: &Spanned<String>) -> Result<Vec<Spanned<String>>, At> {
    let all = braces::expand(text.get_ref()).map_err(|message| at(text, message))?;
    Ok(all.into_iter().map(|one| Spanned::new(text.span(), one)).collect())
}
