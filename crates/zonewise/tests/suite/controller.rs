//! The command line of `zonewise controller`: errors name cause and remedy, and have the right exit code.

use std::path::Path;
use std::process::{Command, Output};

fn controller(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zonewise")).arg("controller").args(arguments).output().unwrap()
}

#[test]
fn wrong_usage_names_cause_and_remedy_and_ends_with_2() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("misspelt.yaml");
    let head = "apiVersion: config.zonewise.dev/v1alpha1\nkind: ControllerConfiguration\n";
    std::fs::write(&file, format!("{head}maxEndpointsPerSlize: 3\n")).unwrap();
    let file = file.to_str().unwrap();
    let rows: [(&[&str], &str); 7] = [
        (&["--feature-gates", "Hints=on"], "TopologyAwareHints"),
        (&["--feature-gates", "Hints=true", "--check"], "unknown feature gate `Hints`"),
        (&["--max-endpoints-per-slice", "0", "--check"], "use 1 to 1000"),
        (&["--endpoint-updates-batch-period", "soon"], "write for example 500ms"),
        (&["--leader-elect-renew-deadline", "20s", "--check"], "leader election"),
        (&["--config", file, "--check"], "misspelt.yaml:3:"),
        (&["--config", "nowhere.yaml"], "cannot read nowhere.yaml"),
    ];
    for (arguments, expected) in rows {
        let output = controller(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn a_cluster_that_cannot_be_found_ends_with_1() {
    let output = controller(&["--kubeconfig", "nowhere.yaml"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("kubeconfig `nowhere.yaml` cannot be used"), "{message}");
}

#[test]
fn a_configuration_can_be_checked_without_a_cluster() {
    let output = controller(&["--check", "--compat", "upstream", "--leader-elect=false"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
