//! What writes EndpointSlices: the controller of zonewise, the one in kube-controller-manager, both or none.

use super::{Check, Part, PodSight, Sights, SliceWrite, Stage, Subject, listed};
use crate::environment::{Environment, ProxyKind, RunState, Sight, environment};
use crate::screens::counted;

const BUILT_IN: Subject = Subject(Part::Controllers, "built-in-controller");
const WRITERS: Subject = Subject(Part::Controllers, "second-writer");
const ASKING: Subject = Subject(Part::Controllers, "services-that-ask");

/// The name by which kube-controller-manager appears in managed fields.
const MANAGER: &str = "kube-controller-manager";

/// Restarts zonewise's controller, which writes what is missing.
pub(super) const RESTART: &str =
    "kubectl -n zonewise-system rollout restart deployment zonewise-controller";

/// How to turn the built-in controller off.
const TURN_OFF: &str = "add --controllers=*,-endpointslice-controller to kube-controller-manager (docs/install.md says where)";

pub(super) fn checks(sights: &Sights, stage: Stage) -> Vec<Check> {
    match stage {
        Stage::Before => vec![built_in_before(sights)],
        Stage::After => vec![writers(sights), asking(sights)],
    }
}

fn seen(sights: &Sights) -> Environment {
    environment(&sights.facts, std::iter::empty(), &[], ProxyKind::Zonewise)
}

/// What is known of the built-in controller.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BuiltIn {
    /// kube-controller-manager's arguments turn it off, or the program does not run.
    Off,
    /// Its arguments leave it on.
    On,
    /// kube-controller-manager runs where its arguments cannot be seen.
    Hidden,
}

fn built_in(sights: &Sights) -> BuiltIn {
    let pods: Vec<&PodSight> = sights
        .system_pods
        .seen()
        .into_iter()
        .flatten()
        .filter(|pod| pod.has("component", MANAGER))
        .collect();
    match pods.as_slice() {
        [] if seen(sights).built_in_controller.state.is_running() => BuiltIn::Hidden,
        [] => match seen(sights).built_in_controller.state {
            RunState::Unknown => BuiltIn::Hidden,
            _ => BuiltIn::Off,
        },
        pods if pods.iter().any(|pod| writes_slices(pod)) => BuiltIn::On,
        _ => BuiltIn::Off,
    }
}

/// Whether a kube-controller-manager with this command line runs its EndpointSlice controller.
fn writes_slices(pod: &PodSight) -> bool {
    // Its name, and the one before Kubernetes 1.28, which is still taken.
    const NAMES: [&str; 2] = ["endpointslice-controller", "endpointslice"];
    let given = controllers_flag(&pod.command);
    let explicit = given.iter().find_map(|name| match name.strip_prefix('-') {
        Some(off) => NAMES.contains(&off).then_some(false),
        None => NAMES.contains(name).then_some(true),
    });
    explicit.unwrap_or_else(|| given.is_empty() || given.contains(&"*"))
}

/// The names in all `--controllers` of a command line, which may be one word or two; the first one that fits counts.
fn controllers_flag(command: &[String]) -> Vec<&str> {
    const FLAG: &str = "--controllers";
    let words = command.iter().map(String::as_str);
    let next = words.clone().skip(1).map(Some).chain([None]);
    let values = words.zip(next).filter_map(|(word, next)| match word.strip_prefix(FLAG)? {
        "" => next,
        rest => rest.strip_prefix('='),
    });
    values.flat_map(|value| value.split(',').map(str::trim)).collect()
}

fn built_in_before(sights: &Sights) -> Check {
    match built_in(sights) {
        BuiltIn::On => BUILT_IN.passed(
            "kube-controller-manager runs as Pods whose command line can be changed: the built-in controller can be \
             turned off when zonewise's is installed",
        )
        .with([install(sights)]),
        BuiltIn::Off => BUILT_IN.warning(
            "no built-in EndpointSlice controller runs: endpoints do not change until a controller does",
            "install the chart soon, or turn the built-in controller on again",
        )
        .with([install(sights)]),
        BuiltIn::Hidden => BUILT_IN
            .warning(
                "kube-controller-manager does not run as Pods of this cluster: it is managed, or started by hand, and its \
                 EndpointSlice controller cannot be turned off from here",
                "on a managed control plane (EKS, GKE, AKS) install zonewise in guard mode, which works beside that \
                 controller from Kubernetes 1.31 on (docs/guard.md): in the mode `controller` the two would overwrite each \
                 other. Where you start kube-controller-manager yourself (k3s), leave controller.mode out, and turn its \
                 controller off (docs/install.md says where)",
            )
            .with([install(sights)]),
    }
}

/// The command that installs zonewise. Where the built-in controller cannot be turned off from here, in guard mode.
pub(super) fn install(sights: &Sights) -> String {
    /// `REGISTRY` stands for the one that the image was pushed to: there is no public one to fall back to.
    const INSTALL: &str = "helm install zonewise deploy/chart -n zonewise-system --create-namespace --set image.repository=REGISTRY/zonewise";
    match built_in(sights) {
        BuiltIn::On | BuiltIn::Off => INSTALL.to_owned(),
        BuiltIn::Hidden => format!("{INSTALL} --set controller.mode=guard"),
    }
}

/// What the controller of zonewise is installed for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// It writes EndpointSlices.
    Controller,
    /// The built-in controller writes them, and an admission policy puts hints in.
    Guard,
    /// It writes nothing at all, and so has no Lease.
    Observe,
}

pub(super) fn mode(sights: &Sights) -> Mode {
    match sights.controller().and_then(|one| one.argument("--mode")) {
        Some("guard") => Mode::Guard,
        Some("observe") => Mode::Observe,
        _ => Mode::Controller,
    }
}

fn writers(sights: &Sights) -> Check {
    let environment = seen(sights);
    let (ours, mode) = (environment.controller, mode(sights));
    let runs = ours.state.is_running() && mode == Mode::Controller;
    let late = late_writes(sights);
    match (runs, built_in(sights)) {
        (true, _) if !late.is_empty() => WRITERS
            .failed(
                format!(
                    "kube-controller-manager has written {} since zonewise's controller leads: {}",
                    counted(late.len(), "EndpointSlice"),
                    listed(late)
                ),
                format!(
                    "turn its controller off: {TURN_OFF}; then restart zonewise's: writes since its start count"
                ),
            )
            .with(["kubectl get events -A --field-selector reason=SecondWriter", RESTART]),
        (true, BuiltIn::On) => WRITERS.failed(
            "zonewise's controller and the built-in one both run, and write the same EndpointSlices",
            TURN_OFF,
        ),
        (true, BuiltIn::Off) => WRITERS.passed("zonewise's controller alone writes EndpointSlices"),
        (true, BuiltIn::Hidden) => match &sights.writes {
            Sight::Seen(_) => WRITERS.passed(
                "zonewise's controller writes EndpointSlices; kube-controller-manager has written none since it leads",
            ),
            Sight::Hidden(why) => WRITERS.unknown(why),
        },
        (false, BuiltIn::Off) if mode != Mode::Controller => WRITERS.failed(
            "no controller writes EndpointSlices: zonewise's leaves that to the built-in one in this mode, which is off",
            "turn the built-in one on again (remove --controllers from kube-controller-manager), or set \
             controller.mode=controller: endpoints of changed Pods are not followed",
        ),
        (false, BuiltIn::Hidden)
            if mode != Mode::Controller && environment.built_in_controller.state.is_running() =>
        {
            WRITERS.passed("kube-controller-manager alone writes EndpointSlices")
        }
        (false, BuiltIn::Off) if ours.state != RunState::Unknown => WRITERS.failed(
            format!("no controller writes EndpointSlices: {}; the built-in one is off", ours.evidence),
            "start zonewise's controller, or turn the built-in one on again: endpoints of changed Pods are not followed",
        )
        .with(["kubectl -n zonewise-system get pods -l app.kubernetes.io/name=zonewise-controller"]),
        (false, BuiltIn::On) => {
            WRITERS.passed("kube-controller-manager alone writes EndpointSlices")
        }
        (false, _) => WRITERS.unknown(ours.evidence),
    }
}

/// The slices that kube-controller-manager has written since our controller leads.
fn late_writes(sights: &Sights) -> Vec<&str> {
    let (Some(since), Some(writes)) = (sights.leading_since, sights.writes.seen()) else {
        return Vec::new();
    };
    let late = |write: &&SliceWrite| write.manager == MANAGER && write.time > since;
    writes.iter().filter(late).map(|write| write.slice.as_str()).collect()
}

/// Services whose annotation does nothing because the program that reads it does not run.
fn asking(sights: &Sights) -> Check {
    let asking = match &sights.asking {
        Sight::Hidden(why) => return ASKING.unknown(why),
        Sight::Seen(asking) => asking,
    };
    let ours = seen(sights).controller;
    if asking.is_empty() {
        return ASKING.passed("no Service has an annotation of zonewise");
    }
    let names = listed(asking.iter().map(String::as_str));
    if mode(sights) == Mode::Observe {
        return ASKING.warning(
            format!(
                "{} with an annotation of zonewise, which has no effect while its controller only observes: {names}",
                counted(asking.len(), "Service")
            ),
            "set controller.mode=controller, or guard where the built-in controller cannot be turned off",
        );
    }
    match ours.state {
        RunState::Running | RunState::Assumed => ASKING.passed(format!(
            "{} with an annotation of zonewise: {names}",
            counted(asking.len(), "Service")
        )),
        RunState::Unknown => ASKING.unknown(ours.evidence),
        RunState::Stopped | RunState::NotFound => ASKING.failed(
            format!(
                "{} with an annotation of zonewise, which has no effect while its controller does not run: {names}",
                counted(asking.len(), "Service")
            ),
            "start the controller, or use spec.trafficDistribution, which the built-in controller understands",
        ),
    }
}
