//! A queue that is fair between lanes: each lane that waits gets one turn before any gets a second one.
//!
//! It has no limit of its own: what waits is bounded by the connections' budgets.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use parking_lot::{Condvar, Mutex};

struct LaneState<T> {
    waiting: VecDeque<T>,
    running: usize,
}

struct State<L, T> {
    lanes: HashMap<L, LaneState<T>>,
    /// Lanes that may run, each once, in the order of their turns.
    turns: VecDeque<L>,
    closed: bool,
}

/// The queue.
pub(crate) struct FairQueue<L, T> {
    state: Mutex<State<L, T>>,
    ready: Condvar,
    lane_running_max: usize,
}

impl<L: Copy + Eq + Hash, T> FairQueue<L, T> {
    /// At most `lane_running_max` items of one lane run at once: a lane full of slow syncs leaves workers for others.
    pub(crate) fn new(lane_running_max: usize) -> Self {
        let state = State { lanes: HashMap::new(), turns: VecDeque::new(), closed: false };
        Self { state: Mutex::new(state), ready: Condvar::new(), lane_running_max: lane_running_max.max(1) }
    }

    /// Appends to a lane. Given back when the queue is closed.
    pub(crate) fn push(&self, lane: L, item: T) -> Result<(), T> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(item);
        }
        let state = &mut *state;
        let of_lane = state.lanes.entry(lane).or_insert_with(|| LaneState { waiting: VecDeque::new(), running: 0 });
        of_lane.waiting.push_back(item);
        // With one waiting already, it has its turn, or gets it when one of its running ends.
        if of_lane.waiting.len() == 1 && of_lane.running < self.lane_running_max {
            state.turns.push_back(lane);
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Waits for the next item; `None` when the queue is closed and empty. [`Self::done`] must follow.
    pub(crate) fn pop(&self) -> Option<(L, T)> {
        let mut guard = self.state.lock();
        loop {
            let state = &mut *guard;
            if let Some(lane) = state.turns.pop_front() {
                let of_lane = state.lanes.get_mut(&lane).expect("because a lane with a turn has items");
                let item = of_lane.waiting.pop_front().expect("because a lane with a turn has items");
                of_lane.running += 1;
                if !of_lane.waiting.is_empty() && of_lane.running < self.lane_running_max {
                    state.turns.push_back(lane);
                    self.ready.notify_one();
                }
                return Some((lane, item));
            }
            if state.closed && state.lanes.values().all(|of_lane| of_lane.waiting.is_empty()) {
                return None;
            }
            self.ready.wait(&mut guard);
        }
    }

    /// An item of `lane` has ended.
    pub(crate) fn done(&self, lane: L) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let of_lane = state.lanes.get_mut(&lane).expect("because a lane stays while one of its items runs");
        let was_held = of_lane.running == self.lane_running_max && !of_lane.waiting.is_empty();
        of_lane.running -= 1;
        if was_held {
            state.turns.push_back(lane);
            self.ready.notify_one();
        } else if of_lane.running == 0 && of_lane.waiting.is_empty() {
            state.lanes.remove(&lane);
        }
        if state.closed {
            self.ready.notify_all();
        }
    }

    /// Takes nothing more; what waits is still handed out.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.ready.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Goal: a lane with one item is served after at most one turn of each other lane, however long those are.
    #[test]
    fn round_robin() {
        let queue = FairQueue::new(8);
        for item in 0..100 {
            queue.push("loud", item).unwrap();
        }
        queue.push("quiet", 0).unwrap();
        queue.push("other", 0).unwrap();
        let order: Vec<_> = (0..4).map(|_| queue.pop().unwrap().0).collect();
        assert_eq!(order, ["loud", "quiet", "other", "loud"]);
    }

    /// Goal: one lane never holds all workers, and goes on when one of its items ends.
    #[test]
    fn running_is_bounded_per_lane() {
        let queue = FairQueue::new(2);
        for item in 0..4 {
            queue.push("slow", item).unwrap();
        }
        assert_eq!(queue.pop(), Some(("slow", 0)));
        assert_eq!(queue.pop(), Some(("slow", 1)));
        queue.push("fast", 9).unwrap();
        assert_eq!(queue.pop(), Some(("fast", 9)), "'slow' is held back");
        queue.done("slow");
        assert_eq!(queue.pop(), Some(("slow", 2)));
    }

    /// Goal: a closed queue takes nothing, hands out the rest, then ends; a waiting worker wakes up.
    #[test]
    fn closing_drains() {
        let queue = FairQueue::new(1);
        queue.push((), 1).unwrap();
        queue.push((), 2).unwrap();
        queue.close();
        assert_eq!(queue.push((), 3), Err(3));
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let mut taken = 0;
                        while let Some((lane, _)) = queue.pop() {
                            taken += 1;
                            queue.done(lane);
                        }
                        taken
                    })
                })
                .collect();
            assert_eq!(workers.into_iter().map(|worker| worker.join().unwrap()).sum::<i32>(), 2);
        });
    }

    proptest! {
        /// Goal: whatever comes in whatever order, every item comes out once, in its lane's order, within the bound,
        /// and no lane is left behind.
        #[test]
        fn nothing_is_lost(pushes in proptest::collection::vec(0..5_u8, 0..60), bound in 1..4_usize, choices: u64) {
            let queue = FairQueue::new(bound);
            let mut running: Vec<u8> = Vec::new();
            let mut out: Vec<(u8, usize)> = Vec::new();
            let mut choices = choices;
            let mut pushed = pushes.iter().copied().enumerate();
            loop {
                choices = choices.rotate_left(7) ^ 0x9e37_79b9_7f4a_7c15;
                if choices & 1 == 0 && let Some((item, lane)) = pushed.next() {
                    queue.push(lane, item).unwrap();
                } else if !queue.state.lock().turns.is_empty() {
                    let (lane, item) = queue.pop().unwrap();
                    running.push(lane);
                    prop_assert!(running.iter().filter(|one| **one == lane).count() <= bound);
                    out.push((lane, item));
                } else if let Some(lane) = running.pop() {
                    queue.done(lane);
                } else if pushed.len() == 0 {
                    break;
                }
            }
            prop_assert_eq!(out.len(), pushes.len());
            for lane in 0..5 {
                let items: Vec<_> = out.iter().filter(|(of, _)| *of == lane).map(|(_, item)| *item).collect();
                prop_assert!(items.is_sorted());
            }
            prop_assert!(queue.state.lock().lanes.is_empty(), "lanes are forgotten when they are idle");
        }
    }
}
