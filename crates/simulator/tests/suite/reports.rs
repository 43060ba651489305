//! What is written, format by format.

use crate::common::{csv, rows, run, run_with};
use zonewise_simulator::evaluate::{Options, RunError, Shard, evaluate};
use zonewise_simulator::report::json::JsonRows;
use zonewise_simulator::report::{Format, write_summary};

const INPUT: &str =
    "name,a,b\n\"even, small\",1 2,1 2\nempty,1 0,1 0\nidle,0 5,0 1\n\"<b>&\"\"x\",3 1,1 9\n";

#[test]
fn a20_rows_as_csv() {
    assert_eq!(
        rows(csv(INPUT), &["local-shared"]),
        "name,score,in_zone_score,deviation_score,slice_score,max_deviation_pct,mean_deviation_pct,sd_of_deviation\n\
         \"even, small\",92.5000,100.0000,100.0000,50.0000,0.0000,0.0000,0.0000\n\
         empty,invalid,invalid,invalid,invalid,invalid,invalid,invalid\n\
         idle,error,error,error,error,error,error,error\n\
         \"<b>&\"\"x\",60.1429,35.7143,91.4286,50.0000,7.1429,10.0000,0.1480\n"
    );
    let several = rows(csv(INPUT), &["random", "auto"]);
    assert!(several.starts_with("heuristic,name,score,"), "{several}");
    assert_eq!(several.lines().count(), 1 + 4 * 2);
}

#[test]
fn a20_rows_as_json_with_groups() {
    let mut out = Vec::new();
    let mut encoder = JsonRows::new(&mut out).unwrap();
    run_with(csv(INPUT), &["auto"], &mut encoder);
    encoder.finish().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(document["kind"], "SimulationRows");
    assert_eq!(document["rows"].as_array().unwrap().len(), 4);
    assert_eq!(
        document["rows"][3],
        serde_json::json!({
            "name": "<b>&\"x", "heuristic": "auto", "outcome": "scored", "score": 67.6429,
            "inZoneScore": 35.7143, "deviationScore": 91.4286, "sliceScore": 100.0,
            "maxDeviationPct": 7.1429, "meanDeviationPct": 10.0, "sdOfDeviation": 0.148,
            "limit": 70.75, "distance": 3.1071,
            "reason": {"code": "HintsAssigned", "moved": 6}, "slices": 1,
            "groups": [
                {"label": "a", "endpoints": {"a": 1, "b": 6}, "weights": {"a": 1.0}},
                {"label": "b", "endpoints": {"b": 3}, "weights": {"b": 1.0}},
            ],
        })
    );
    let mut empty = Vec::new();
    JsonRows::new(&mut empty).unwrap().finish().unwrap();
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&empty).unwrap()["rows"],
        serde_json::json!([])
    );
}

#[test]
#[cfg(feature = "parquet")]
fn a20_rows_and_summary_as_parquet() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use zonewise_simulator::report::parquet::ParquetRows;

    let mut out = Vec::new();
    let mut encoder = ParquetRows::new(&mut out, "in.csv").unwrap();
    run_with(csv(INPUT), &["local-shared"], &mut encoder);
    encoder.finish().unwrap();
    let reader = SerializedFileReader::new(bytes::Bytes::from(out)).unwrap();
    let read: Vec<_> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap()).collect();
    let outcomes: Vec<&str> = read.iter().map(|row| row.get_string(2).unwrap().as_str()).collect();
    assert_eq!(outcomes, ["scored", "invalid", "error", "scored"]);
    assert_eq!(read[0].get_string(0).unwrap(), "even, small");
    assert_eq!((read[0].get_long(4).unwrap(), read[0].get_double(5).unwrap()), (0, 92.5));
    assert!(read[1].get_double(5).is_err(), "an invalid row has no score");
    assert_eq!(read[2].get_string(3).unwrap(), "NeverSettles");

    let mut out = Vec::new();
    let summary = run(csv(INPUT), &["random", "local-shared"]);
    write_summary(&summary, Format::Parquet, &mut out).unwrap();
    let reader = SerializedFileReader::new(bytes::Bytes::from(out)).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 2);
}

/// A build without Parquet must not write an empty file.
#[test]
#[cfg(not(feature = "parquet"))]
fn a20_parquet_that_is_not_built_in_is_refused_with_its_feature() {
    let error = write_summary(&run(csv(INPUT), &["random"]), Format::Parquet, &mut Vec::new());
    assert!(error.unwrap_err().to_string().contains("cargo feature `parquet`"));
    assert!(Format::Parquet.check_built_in().is_err());
    assert!(Format::Json.check_built_in().is_ok());
}

#[test]
fn a20_summary_as_json_and_csv() {
    let summary = run(csv(INPUT), &["local-shared"]);
    let mut out = Vec::new();
    write_summary(&summary, Format::Json, &mut out).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let line = &document["heuristics"][0];
    assert_eq!((&document["rows"], &document["leftOut"]), (&4.into(), &0.into()));
    assert_eq!(
        (&line["valid"], &line["invalid"], &line["failed"]),
        (&2.into(), &1.into(), &1.into())
    );
    assert_eq!(line["score"], serde_json::json!({"mean": 76.32145, "min": 60.1429, "max": 92.5}));
    assert_eq!(line["worst"][0]["name"], "<b>&\"x");
    let place = document["problems"][0]["place"].as_str().unwrap();
    assert_eq!(place, "row 2 (`idle`)");
    let mut out = Vec::new();
    write_summary(&summary, Format::Csv, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.lines().nth(1).unwrap().starts_with("local-shared,4,2,1,1,1,76.321450,67.857150,"),
        "{text}"
    );
}

/// Names come from files: they must not become markup.
#[test]
fn html_escapes_names() {
    let input = "name,<script>,b\n\"<img src=x onerror=alert(1)>\",1 9,1 0\n";
    let mut out = Vec::new();
    write_summary(&run(csv(input), &["random"]), Format::Html, &mut out).unwrap();
    let page = String::from_utf8(out).unwrap();
    assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;"));
    assert!(!page.contains("http"), "the page loads nothing from elsewhere");
}

#[test]
fn a_data_set_without_rows_is_reported_not_divided_by() {
    let summary = run(csv("name,a,b\n"), &["random", "balanced"]);
    for format in Format::BUILT_IN {
        let mut out = Vec::new();
        write_summary(&summary, *format, &mut out).unwrap();
        assert!(!String::from_utf8_lossy(&out).contains("NaN"));
    }
}

#[test]
fn strict_stops_at_the_first_bad_row_and_lenient_goes_on() {
    let input = "name,a,b\ngood,1 1,1 1\nbad,1 1\nidle,0 5,0 5\nlast,2 2,2 2\n";
    let lenient = run(csv(input), &["local-shared"]);
    assert_eq!((lenient.rows, lenient.left_out, lenient.heuristics[0].failed), (3, 1, 1));
    let strict = |input: &str| {
        let options = Options { shard: Shard::WHOLE, strict: true, progress: &|_| {} };
        let choices = crate::common::choices(&["local-shared"]);
        evaluate(csv(input), &choices, &options, &mut zonewise_simulator::evaluate::NoRows)
    };
    let Err(RunError::Strict(problem)) = strict(input) else { panic!("it went on") };
    assert_eq!(problem.to_string(), "in.csv:3: expected 3 cells (a name and 2 zones), found 2");
    let Err(RunError::Strict(problem)) = strict("name,a\nidle,0 5\n") else { panic!("it went on") };
    assert!(problem.to_string().starts_with("row 0 (`idle`): local-shared: "), "{problem}");
}
