//! The page of a lab: what its clients measure, while the story is played.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use serde_json::Value;
use zonewise_testbed::Tab;

use super::accessibility::findings;
use super::pictures;

#[test]
fn the_page_shows_what_the_clients_of_a_lab_measure() {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_zonewise"))
        .args(["lab", "--duration", "90s", "--page", "127.0.0.1:0", "-o", "json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(lab.stderr.take().unwrap()).lines();
    let mut url =
        said.find_map(|line| Some(line.unwrap().strip_prefix("lab: the page is at ")?.to_owned()));
    let url = url.take().expect("the address of the page");
    std::thread::spawn(move || said.for_each(drop));

    let mut tab = Tab::start().unwrap();
    tab.open(&format!("{url}/#/lab")).unwrap();
    tab.until_text(".act h2", "Topology-mode Auto").unwrap();
    tab.until("document.querySelectorAll('#matrix .heat').length === 9").unwrap();
    tab.until("document.querySelectorAll('#endpoints .endpoint').length > 0").unwrap();
    tab.size(1280, 900).unwrap();
    pictures::keep(&mut tab, "dashboard-lab");
    assert_eq!(findings(&mut tab), Vec::<String>::new());
    tab.size(390, 844).unwrap();
    assert_eq!(findings(&mut tab), Vec::<String>::new(), "on a phone");
    let widths = tab.evaluate("[document.documentElement.scrollWidth, innerWidth]").unwrap();
    assert_eq!(widths[0], widths[1], "on a phone");
    tab.size(1280, 900).unwrap();
    // Where traffic goes by the objects, on the page of the Service.
    tab.click("#to-services").unwrap();
    tab.until_text(".list", "default/web").unwrap();
    tab.open(&format!("{url}/#/lab")).unwrap();
    tab.until_text("#acts", "No topology").unwrap();
    let first = tab.text("#acts tbody tr").unwrap();
    assert_eq!(tab.complaints(), Vec::<String>::new());
    // Nobody looks any more: drawing the rest of the story takes as much CPU as playing it.
    drop(tab);

    let mut summary = String::new();
    lab.stdout.take().unwrap().read_to_string(&mut summary).unwrap();
    // Whether every act held is proved by the tests of the lab; here it is what the page shows of them.
    lab.wait().unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    let part = summary["acts"][0]["inZone"].as_f64().unwrap();
    let told = format!("{:.0}\u{a0}%", part * 100.0);
    assert!(first.contains(&told), "the same figure: {first} and {told}");
}
