//! Folds runs of equal calls into one audit event, so that a loop of kills
//! costs neither the caller nor the audit ring a record each.

use std::time::{Duration, Instant};

use super::caller::CallerIdentity;
use crate::audit::MediatedCall;

/// The run of equal calls that is going on.
#[derive(Debug)]
pub(super) struct Fold {
    window: Duration,
    run: Option<Run>,
}

#[derive(Debug)]
struct Run {
    /// The call that was reported when the run began.
    call: MediatedCall,
    began: Instant,
    /// Calls since then, not reported yet.
    repeats: u64,
}

impl Fold {
    pub(super) fn new(window: Duration) -> Self {
        Self { window, run: None }
    }

    /// Takes in a call and returns what is to be reported now: the repeats of a
    /// run that this call ends, and the call itself if it begins one. `identify`
    /// is asked only then.
    pub(super) fn add(
        &mut self,
        mut call: MediatedCall,
        now: Instant,
        identify: impl FnOnce() -> Option<CallerIdentity>,
    ) -> Vec<MediatedCall> {
        let continues = |run: &Run| now < run.began + self.window && run.call.repeats(&call);
        if let Some(run) = self.run.as_mut().filter(|run| continues(run)) {
            run.repeats += 1;
            return Vec::new();
        }
        let ended = self.flush();
        call.caller = identify();
        self.run = Some(Run { call: call.clone(), began: now, repeats: 0 });
        ended.into_iter().chain([call]).collect()
    }

    /// When the repeats so far are due, if there are any.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.run.as_ref().filter(|run| run.repeats > 0).map(|run| run.began + self.window)
    }

    /// The repeats, if they are due.
    pub(super) fn expire(&mut self, now: Instant) -> Option<MediatedCall> {
        if self.deadline()? <= now { self.flush() } else { None }
    }

    /// Ends the run and returns its unreported repeats as one event.
    pub(super) fn flush(&mut self) -> Option<MediatedCall> {
        let run = self.run.take()?;
        (run.repeats > 0).then_some(MediatedCall { count: run.repeats, ..run.call })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Abi;
    use crate::ids::Pid;
    use crate::mediator::{Decision, Reason};

    const WINDOW: Duration = Duration::from_millis(100);

    fn call(argument: u64) -> MediatedCall {
        MediatedCall {
            syscall: "kill",
            abi: Abi::Native,
            arguments: [argument, 0, 0, 0, 0, 0],
            thread: Pid::new(9),
            caller: None,
            target: None,
            session: None,
            decision: Decision::Allow,
            reason: Reason::OwnSession,
            count: 1,
        }
    }

    fn identity() -> Option<CallerIdentity> {
        Some(CallerIdentity { process: crate::ids::Tgid::new(9)?, uid: 0, comm: "sh".into() })
    }

    fn counts(reports: &[MediatedCall]) -> Vec<(u64, u64)> {
        reports.iter().map(|call| (call.arguments[0], call.count)).collect()
    }

    #[test]
    fn every_call_is_counted_once() {
        let mut fold = Fold::new(WINDOW);
        let start = Instant::now();
        assert_eq!(counts(&fold.add(call(1), start, identity)), [(1, 1)]);
        assert_eq!(fold.deadline(), None);
        for _ in 0..5 {
            assert_eq!(counts(&fold.add(call(1), start, || unreachable!())), []);
        }
        assert_eq!(counts(&fold.add(call(2), start, identity)), [(1, 5), (2, 1)]);
        assert_eq!(fold.flush(), None);
    }

    #[test]
    fn repeats_are_due_at_the_end_of_the_window() {
        let mut fold = Fold::new(WINDOW);
        let start = Instant::now();
        assert_eq!(counts(&fold.add(call(1), start, identity)), [(1, 1)]);
        assert_eq!(counts(&fold.add(call(1), start, identity)), []);
        assert_eq!(fold.deadline(), Some(start + WINDOW));
        assert_eq!(fold.expire(start), None);
        let repeats = fold.expire(start + WINDOW).unwrap();
        assert_eq!((repeats.count, repeats.caller), (1, identity()));
        assert_eq!(counts(&fold.add(call(1), start + WINDOW, identity)), [(1, 1)]);
    }
}
