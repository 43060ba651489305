//! What the kernel must have is tried, and told in plain words.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use zonewise_netns::Namespace;
use zonewise_nft::simulated::{SimulatedFault, SimulatedKernel};
use zonewise_nft::{Family, Network, Socket};
use zonewise_proxy::features::{ProbedFeature, probe};
use zonewise_proxy::testing::{Kernel, NodeSettings, Options};

const EOPNOTSUPP: i32 = 95;

fn missing(found: &[ProbedFeature]) -> Vec<(&'static str, bool)> {
    let missing = found.iter().filter(|found| found.error.is_some());
    missing.map(|found| (found.feature.name, found.feature.required)).collect()
}

/// The kernel that tests run on has everything, and trying it leaves no trace.
#[test]
fn features_are_tried_without_a_change() {
    let namespace = Namespace::new("features").unwrap();
    namespace.enter(|| {
        let mut socket = Socket::open().unwrap();
        let before = socket.generation().unwrap();
        let found = probe(&Network::default()).unwrap();
        assert_eq!(missing(&found), []);
        assert!(found.len() > 5, "{found:?}");
        assert_eq!(socket.generation().unwrap(), before);
        assert_eq!(socket.tables().unwrap(), []);
    });
}

/// A kernel before 6.9, simulated: the proxy says what is different, and its tables have no owner.
#[test]
fn a_kernel_without_owners_is_told_and_used() {
    let network = Network::simulated(SimulatedKernel::new(false).process());
    let found = probe(&network).unwrap();
    assert_eq!(missing(&found), [("tables with an owner that outlive it", false)]);
    let told = found.iter().find(|found| found.error.is_some()).unwrap().to_string();
    assert!(told.contains("looks twice a second") && told.contains("6.9"), "{told}");
    let names = Box::new(|_| String::new());
    let settings = NodeSettings::default();
    let mut kernel =
        Kernel::open(&network, Options::default(), vec![Family::Ip], settings, names).unwrap();
    kernel.start(Vec::new(), Vec::new()).unwrap();
    assert!(!kernel.is_owned());
}

/// A kernel that lacks what every Service needs, simulated: each feature is named with its remedy.
#[test]
fn a_kernel_that_lacks_what_is_needed_is_told_with_the_remedy() {
    let kernel = SimulatedKernel::new(true);
    kernel.set_hook(|call| call.is_commit().then_some(SimulatedFault::Refused(EOPNOTSUPP)));
    let found = probe(&Network::simulated(kernel.process())).unwrap();
    let required = missing(&found).iter().filter(|(_, required)| *required).count();
    assert_eq!(required, 7);
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(texts.iter().any(|text| text.contains("load the module nft_numgen")), "{texts:?}");
    // Missing rights are no missing feature.
    kernel.set_hook(|call| call.is_commit().then_some(SimulatedFault::Refused(1)));
    assert!(probe(&Network::simulated(kernel.process())).is_err());
}
