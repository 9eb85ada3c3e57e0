//! Reports to the user when lanes fall silent during a transfer, and when they answer again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::event::{Event, Observer};
use crate::lanes::LaneState;

/// A lane without an answer for this long after it was first needed counts as silent.
const OPENING: Duration = Duration::from_secs(1);

/// Reports each silence once, until the lane has ended.
pub(super) async fn report_lane_status(
    observer: Arc<dyn Observer>,
    mut states: watch::Receiver<LaneState>,
) {
    let mut is_told = false;
    loop {
        let state = *states.borrow_and_update();
        let changed = states.changed();
        let ended = match state {
            LaneState::Opening if !is_told => match tokio::time::timeout(OPENING, changed).await {
                Ok(changed) => changed.is_err(),
                Err(_) => {
                    is_told = true;
                    observer.event(Event::LanesSilent);
                    false
                }
            },
            LaneState::Silent if !is_told => {
                is_told = true;
                observer.event(Event::LanesSilent);
                continue;
            }
            LaneState::Ready if is_told => {
                is_told = false;
                observer.event(Event::LanesBack);
                continue;
            }
            LaneState::GivenUp => return,
            _ => changed.await.is_err(),
        };
        if ended {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Told(Mutex<Vec<&'static str>>);

    impl Observer for Told {
        fn event(&self, event: Event<'_>) {
            let told = match event {
                Event::LanesSilent => "silent",
                Event::LanesBack => "back",
                _ => return,
            };
            self.0.lock().expect("nobody panicked").push(told);
        }
    }

    #[test]
    fn each_silence_and_its_end_are_reported_once() {
        let (set, states) = watch::channel(LaneState::Idle);
        let told = Arc::new(Told::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let telling = tokio::spawn(report_lane_status(Arc::clone(&told) as _, states));
            for state in [
                LaneState::Opening,
                LaneState::Ready,
                LaneState::Silent,
                LaneState::Silent,
                LaneState::Ready,
                LaneState::Silent,
                LaneState::Ready,
                LaneState::GivenUp,
            ] {
                set.send_replace(state);
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
            }
            telling.await.expect("it ends with the lane");
        });
        assert_eq!(*told.0.lock().expect("nobody panicked"), ["silent", "back", "silent", "back"]);
    }
}
