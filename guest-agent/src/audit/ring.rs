//! The bounded ring of events and the subscriptions to it.
//!
//! Upholds that the host can tell that it has all events: numbers have no gaps,
//! and whatever the ring dropped before a subscriber came to it is told as an
//! exact range.

use std::collections::VecDeque;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::watch;

use super::event::{Event, EventKind};
use crate::ids::ExecId;

/// Events handed to a subscriber at once: enough to amortise the lock, little
/// enough that a slow subscriber holds few.
const BATCH: usize = 256;

/// An event's number, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seq(u64);

impl Seq {
    /// The number, 0 for "before the first".
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A subscription cannot begin there.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "audit event {asked} was never recorded, the newest is {newest}: was the agent restarted? subscribe from 0"
)]
pub struct SubscribeError {
    asked: Seq,
    newest: Seq,
}

/// The audit of one agent.
#[derive(Clone, Debug)]
pub struct Audit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    ring: Mutex<Ring>,
    newest: watch::Sender<Seq>,
}

#[derive(Debug)]
struct Ring {
    events: VecDeque<Arc<Event>>,
    newest: Seq,
    capacity: usize,
}

impl Audit {
    /// Keeps up to `capacity` events.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let ring = Ring { events: VecDeque::new(), newest: Seq(0), capacity: capacity.max(1) };
        Self(Arc::new(Shared { ring: Mutex::new(ring), newest: watch::Sender::new(Seq(0)) }))
    }

    /// Records an event.
    pub fn record(&self, exec: Option<ExecId>, kind: EventKind) {
        let mut ring = self.ring();
        let seq = Seq(ring.newest.0 + 1);
        ring.newest = seq;
        if ring.events.len() == ring.capacity {
            ring.events.pop_front();
        }
        ring.events.push_back(Arc::new(Event { seq, time: SystemTime::now(), exec, kind }));
        drop(ring);
        self.0.newest.send_modify(|newest| *newest = seq.max(*newest));
    }

    /// Follows the events after `after`.
    pub fn subscribe(&self, after: Seq) -> Result<Subscription, SubscribeError> {
        let newest = self.ring().newest;
        if after > newest {
            return Err(SubscribeError { asked: after, newest });
        }
        Ok(Subscription { audit: self.clone(), seen: after, newest: self.0.newest.subscribe() })
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // No code that holds the lock can panic half-way through a change.
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a subscriber stands.
#[derive(Debug)]
pub struct Subscription {
    audit: Audit,
    seen: Seq,
    newest: watch::Receiver<Seq>,
}

/// What a subscriber has not seen yet, oldest first.
#[derive(Debug, Default)]
pub struct Items {
    /// Numbers whose events are gone.
    pub lost: Option<RangeInclusive<u64>>,
    /// The events after those.
    pub events: Vec<Arc<Event>>,
}

impl Items {
    /// Whether there is nothing new.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lost.is_none() && self.events.is_empty()
    }
}

impl Subscription {
    /// The next events, at most a batch; empty after the newest.
    pub fn next_batch(&mut self) -> Items {
        let ring = self.audit.ring();
        let oldest_kept = ring.events.front().map_or(ring.newest.0 + 1, |event| event.seq.0);
        let first_wanted = self.seen.0 + 1;
        let lost = (first_wanted < oldest_kept).then(|| first_wanted..=oldest_kept - 1);
        let skip = first_wanted.saturating_sub(oldest_kept);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let events: Vec<_> = ring.events.iter().skip(skip).take(BATCH).cloned().collect();
        drop(ring);
        if let Some(last) = events.last() {
            self.seen = last.seq;
        } else if let Some(lost) = &lost {
            self.seen = Seq(*lost.end());
        }
        Items { lost, events }
    }

    /// Waits until there is an event that this subscription has not seen.
    pub async fn changed(&mut self) {
        let seen = self.seen;
        // The sender lives in `self.audit`, so the wait cannot fail.
        let _ = self.newest.wait_for(|newest| *newest > seen).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::AgentPhase;
    use proptest::prelude::*;

    fn record(audit: &Audit, count: u64) {
        for _ in 0..count {
            audit.record(None, EventKind::Agent(AgentPhase::ShuttingDown));
        }
    }

    #[test]
    fn a_subscriber_gets_what_comes_after_its_number() {
        let audit = Audit::new(10);
        record(&audit, 3);
        let mut subscription = audit.subscribe(Seq(1)).unwrap();
        let items = subscription.next_batch();
        assert_eq!(items.lost, None);
        assert_eq!(items.events.iter().map(|e| e.seq.0).collect::<Vec<_>>(), [2, 3]);
        assert!(subscription.next_batch().is_empty());
        record(&audit, 1);
        assert_eq!(subscription.next_batch().events.len(), 1);
    }

    #[test]
    fn a_future_number_is_refused() {
        let error = Audit::new(10).subscribe(Seq(1)).unwrap_err();
        assert!(error.to_string().contains("never recorded"));
    }

    #[tokio::test]
    async fn waiting_ends_with_the_next_event() {
        let audit = Audit::new(10);
        let mut subscription = audit.subscribe(Seq(0)).unwrap();
        let recorder = audit.clone();
        let task = tokio::task::spawn_blocking(move || record(&recorder, 1));
        subscription.changed().await;
        assert_eq!(subscription.next_batch().events.len(), 1);
        task.await.unwrap();
    }

    proptest! {
        /// Whatever is recorded and read in whatever order: each number is
        /// either delivered or reported lost, exactly once and in order.
        #[test]
        fn no_number_is_missing(capacity in 1..20_usize, steps in prop::collection::vec(0..40_u64, 1..30)) {
            let audit = Audit::new(capacity);
            let mut subscription = audit.subscribe(Seq(0)).unwrap();
            let mut next = 1;
            let mut recorded = 0;
            for step in steps {
                record(&audit, step);
                recorded += step;
                loop {
                    let items = subscription.next_batch();
                    if items.is_empty() { break }
                    if let Some(lost) = items.lost {
                        prop_assert_eq!(*lost.start(), next);
                        next = lost.end() + 1;
                    }
                    for event in items.events {
                        prop_assert_eq!(event.seq.0, next);
                        next += 1;
                    }
                }
                prop_assert_eq!(next, recorded + 1);
            }
        }
    }
}
