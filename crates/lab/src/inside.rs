//! Programs of the lab that run on threads of their own, inside a network namespace if there is one: the proxies and the
//! controller.

use std::thread::JoinHandle;

use kube::Client;
use zonewise_netns::Namespace;
use zonewise_telemetry::shutdown::Shutdown;

/// A program that runs on a thread of its own. Dropping it stops the program, and waits until it has ended.
#[derive(Debug)]
pub(crate) struct InsideProgram {
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl InsideProgram {
    /// Starts `run` with a client for the API server. `access` is how that is reached from inside.
    pub(crate) fn start<F: Future<Output = anyhow::Result<()>>>(
        name: String,
        namespace: Option<Namespace>,
        access: kube::Config,
        run: impl FnOnce(Client, Shutdown) -> F + Send + 'static,
    ) -> Self {
        let shutdown = Shutdown::manual();
        let signal = shutdown.clone();
        let thread = std::thread::spawn(move || {
            if let Err(error) = live(namespace.as_ref(), access, |client| run(client, signal)) {
                tracing::error!("the {name} ended: {error:#}");
            }
        });
        Self { shutdown, thread: Some(thread) }
    }

    /// Tells the program to stop, without waiting for it.
    pub(crate) fn stop(&self) {
        self.shutdown.trigger();
    }
}

fn live<F: Future<Output = anyhow::Result<()>>>(
    namespace: Option<&Namespace>,
    access: kube::Config,
    run: impl FnOnce(Client) -> F,
) -> anyhow::Result<()> {
    // Threads of the runtime inherit the network namespace of the thread that creates them.
    if let Some(namespace) = namespace {
        namespace.join()?;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let result = runtime.block_on(async { run(Client::try_from(access)?).await });
    runtime.shutdown_background();
    result
}

impl Drop for InsideProgram {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
