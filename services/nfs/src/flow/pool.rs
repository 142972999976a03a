//! Worker threads that serve requests in the order of the fair queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::queue::FairQueue;
use super::{Lane, Request, Service};

/// The threads and their queue.
pub(crate) struct Pool {
    queue: Arc<FairQueue<Lane, Request>>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `workers` threads.
    pub(crate) fn start<S: Service>(service: &Arc<S>, workers: usize) -> std::io::Result<Self> {
        // Three quarters for one lane: a single client still gets most of the box, and never all of it.
        let queue = Arc::new(FairQueue::new((workers * 3 / 4).max(1)));
        let mut pool = Self { queue, workers: Vec::new() };
        for number in 0..workers.max(1) {
            let (queue, service) = (Arc::clone(&pool.queue), Arc::clone(service));
            let worker = std::thread::Builder::new()
                .name(format!("nfs-{number}"))
                .spawn(move || work(&queue, service.as_ref()))?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Queues a request; dropped when the pool is closed.
    pub(crate) fn submit(&self, lane: Lane, request: Request) {
        drop(self.queue.push(lane, request));
    }
}

impl Drop for Pool {
    /// Lets the workers finish what is queued.
    fn drop(&mut self) {
        self.queue.close();
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("an NFS worker ended by a panic");
            }
        }
    }
}

fn work<S: Service>(queue: &FairQueue<Lane, Request>, service: &S) {
    while let Some((lane, request)) = queue.pop() {
        // A bug in one request must not take a worker from all others. Its client gets no answer and asks again.
        if catch_unwind(AssertUnwindSafe(|| service.serve(request))).is_err() {
            tracing::error!(?lane, "a request panicked; it gets no answer");
        }
        queue.done(lane);
    }
}
