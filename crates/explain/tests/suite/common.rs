//! What several of these tests begin with.

use zonewise_explain::input::{self, Options};
use zonewise_explain::{Depth, Environment, Planner, ProxyKind, SnapshotBuilder};
use zonewise_slices::settings::Settings;
use zonewise_topology::capacity::MissingCpu;

/// The controller's default settings, with our proxy on every node.
pub(crate) fn planner() -> Planner {
    Planner {
        settings: Settings::default(),
        missing_cpu: MissingCpu::Refuse,
        depth: Depth::Full,
        proxy_kind: ProxyKind::Zonewise,
        environment: Environment::assumed(ProxyKind::Zonewise),
    }
}

/// Reads manifests, with the text that proxies read.
pub(crate) fn read(builder: &mut SnapshotBuilder, text: &[u8]) {
    let kept = Options { keep_json: true };
    input::read("f", text, &kept, &mut |item| builder.add(item), &|_| ()).unwrap();
}
