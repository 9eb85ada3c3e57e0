//! What a plan between two real hosts cannot ask for.

use headroom_lab_results::schema::SshHosts;
use toml::Spanned;

use super::PlanFile;
use crate::at::{At, at};
use crate::link::LinkSpec;
use crate::plan::PlannedStack;
use crate::workload::WorkloadKind;

impl PlanFile {
    /// Between real hosts nothing is built that a lost connection would leave
    /// behind.
    pub(super) fn require_real_stacks(&self, stacks: &[PlannedStack]) -> Result<(), At> {
        let most = SshHosts::MAX_STACKS;
        if stacks.len() > most {
            return Err(at(&self.stacks, format!("between two real hosts at most {most} stacks")));
        }
        for (planned, written) in stacks.iter().zip(self.stacks.get_ref()) {
            let mut layers = planned.stack.layers.iter();
            if let Some(network) = layers.find(|layer| layer.kind().is_network()) {
                let message = format!(
                    "`{}`: `{}` would change interfaces and routes of two real hosts, which the lab does not; between \
                     them the layer `tls` can be measured",
                    planned.stack.name,
                    network.name()
                );
                return Err(at(written, message));
            }
        }
        Ok(())
    }

    /// Two real hosts have the link that they have.
    pub(super) fn require_no_shaping(&self, link: &LinkSpec) -> Result<(), At> {
        let shaped = self.link.as_ref().filter(|_| !link.is_unshaped()).map(Spanned::span);
        let checked = self.validation_links.first().map(Spanned::span);
        let backend = self.link_backend.as_ref().map(Spanned::span);
        let offload = self.offload.as_ref().map(Spanned::span);
        match shaped.or(checked).or(backend) {
            Some(span) => {
                let message = "the lab does not shape the link between two real hosts: leave out `link`, `validation-links` and \
                               `link-backend`, or measure on one machine";
                Err(At { span, message: message.to_owned() })
            }
            None => match offload {
                Some(span) => {
                    let message =
                        "the lab does not change the offloads of real hosts: leave out `offload`";
                    Err(At { span, message: message.to_owned() })
                }
                None => Ok(()),
            },
        }
    }

    /// A one-way delay is told by one clock.
    pub(super) fn require_no_delays(&self) -> Result<(), At> {
        let mut kinds = self.workload.get_ref().iter().map(|workload| &workload.kind);
        kinds.find(|kind| *kind.get_ref() == WorkloadKind::Realtime).map_or(Ok(()), |kind| {
            Err(at(
                kind,
                "two real hosts have two clocks, so their one-way delay cannot be measured: \
                          run `realtime` on one machine",
            ))
        })
    }
}
