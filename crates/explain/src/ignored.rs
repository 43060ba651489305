//! Keys of a Service that have no effect: what to do about each.

use zonewise_slices::requested::RequestNote;
use zonewise_slices::service::Service;
use zonewise_topology::reason::Code;

use crate::change::Change;
use crate::shell_quote::shell_quote;

/// Commands that make a key take effect as it was probably meant, or that remove it. None where people have to decide.
pub(crate) fn commands(note: &RequestNote, service: &Service) -> Vec<String> {
    if note.reason.code() == Code::KeyIsLabel {
        return vec![
            remove_label(note, service),
            annotate(&note.source, &note.value).sentence(service),
        ];
    }
    changes(note).iter().map(|change| change.sentence(service)).collect()
}

/// The same as changes of the Service or of the controller, without those of labels.
pub(crate) fn changes(note: &RequestNote) -> Vec<Change> {
    let code = note.reason.code();
    let remove = || Change::RemoveAnnotation { key: note.source.to_string() };
    match (code, &note.meant) {
        (Code::GateOff, _) => {
            let turn_on = |gate: &str| Change::TurnOnGate { gate: gate.into() };
            note.closed_gates.iter().map(|gate| turn_on(gate.name())).collect()
        }
        _ if note.source.starts_with("spec.") => Vec::new(),
        (Code::KeyUnknown, Some(meant)) => vec![remove(), annotate(meant, &note.value)],
        (_, Some(meant)) => vec![annotate(&note.source, meant)],
        _ => vec![remove()],
    }
}

fn annotate(key: &str, value: &str) -> Change {
    Change::Annotate { key: key.into(), value: value.into() }
}

fn remove_label(note: &RequestNote, service: &Service) -> String {
    let label = format!("{}-", note.source);
    let (space, name) = (shell_quote(&service.namespace), shell_quote(&service.name));
    format!("kubectl -n {space} label service {name} {}", shell_quote(&label))
}
