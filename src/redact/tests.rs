use std::path::Path;

use rgpu_format::ncu_rep::NcuReadLimits;
use rgpu_protocol::{HostFacts, RungRecord};

use super::*;
use rgpu_analysis as analysis;
use rgpu_import::ncu::{self, RequestedCounters};
use rgpu_import::nsys;
use rgpu_model::launch::RuleMessage;
use rgpu_report::{REPORTS, ReportInput, Style};

/// Nothing of this may survive.
const SECRETS: &[&str] = &[
    "grace-lab-7",
    "alicehopper",
    "/home/",
    "hunter2",
    "10.77.3.9",
    "fe80::1ff:fe23",
    "ssh://",
    "build-farm",
    "secret_algorithm",
    "/scratch/alice",
    "3f0c1f0e-1111-2222-3333-444455556666",
];

fn fixture(path: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)).unwrap()
}

/// A profile of real reports on a host with secrets in every place.
fn profile() -> (Profile, Sidecars) {
    let mut profile = Profile::default();
    let mut sidecars = Sidecars::default();
    let limits = NcuReadLimits { max_size: 1 << 30 };
    let report = fixture("ncu/2025.3.1/full-tiled-matmul/report.ncu-repz");
    let from = "/home/alicehopper/work/report.ncu-repz";
    ncu::import(&report, from, &RequestedCounters::default(), &limits)
        .unwrap()
        .add_to(&mut profile, &mut sidecars);
    let report = fixture("nsys/2025.3.1/regions/report.nsys-rep");
    nsys::import_report(&report, "raw/r.nsys-rep").unwrap().add_to(&mut profile, &mut sidecars);
    let agent = serde_json::from_slice(&fixture("facts/synthetic-h200.json")).unwrap();
    let mut host = HostFacts { agent, ..HostFacts::default() };
    "grace-lab-7".clone_into(&mut host.agent.hostname);
    "alicehopper".clone_into(&mut host.agent.user);
    "/home/alicehopper/.cache/rgpu".clone_into(&mut host.agent.folder);
    "build-farm".clone_into(&mut host.remote);
    profile.host = Some(host);
    "build-farm".clone_into(&mut profile.run.remote);
    profile.run.command = vec!["rgpu".to_owned(), "--env".to_owned(), "TOKEN=hunter2".to_owned()];
    profile.kernel.source = "/home/alicehopper/secret/tiled.cu".to_owned();
    profile.gpu = Some("GPU-3f0c1f0e-1111-2222-3333-444455556666".to_owned());
    let words = "grace-lab-7 (10.77.3.9, fe80::1ff:fe23:4567) as alicehopper@grace-lab-7: \
                 cannot open '/scratch/alice/x.so' HF_TOKEN=hunter2 via ssh://alicehopper@build-farm:22";
    profile.ladder.push(RungRecord {
        rung: "ncu.asked".to_owned(),
        argv: vec!["--password".to_owned(), "hunter2".to_owned()],
        message: words.to_owned(),
        stdout_tail: words.to_owned(),
        ..RungRecord::default()
    });
    profile.gaps.push(Gap { code: "x".to_owned(), text: words.to_owned() });
    profile.launches[0]
        .rules
        .push(RuleMessage { text: words.to_owned(), ..RuleMessage::default() });
    let lines =
        sidecars.hotspots.iter_mut().flat_map(|h| &mut h.launches).flat_map(|l| &mut l.lines);
    for line in lines {
        line.text = Some("secret_algorithm(x);".to_owned());
        line.at.file = "/home/alicehopper/secret/tiled.cu".to_owned();
    }
    analysis::analyze(&mut profile);
    (profile, sidecars)
}

#[test]
fn nothing_of_a_list_of_secrets_survives_in_documents_or_reports() {
    let (mut profile, mut sidecars) = profile();
    redact(&mut profile, &mut sidecars).unwrap();
    let mut texts = vec![
        ("profile".to_owned(), serde_json::to_string(&profile).unwrap()),
        ("hotspots".to_owned(), serde_json::to_string(&sidecars.hotspots).unwrap()),
        ("trace".to_owned(), serde_json::to_string(&sidecars.trace).unwrap()),
    ];
    for report in REPORTS {
        for document in (report.render)(&ReportInput::new(&profile, &sidecars), &Style::default()) {
            let name = format!("{} {}", report.id, document.name);
            texts.push((name, document.into_text()));
        }
    }
    for (name, text) in &texts {
        for secret in SECRETS {
            assert!(!text.contains(secret), "`{secret}` is in {name}");
        }
    }
    assert!(sidecars.hotspots.is_some_and(|h| h.launches.iter().any(|l| !l.lines.is_empty())));
}

#[test]
fn what_is_no_secret_stays() {
    let (mut profile, mut sidecars) = profile();
    let before = profile.clone();
    redact(&mut profile, &mut sidecars).unwrap();
    assert_eq!(profile.launches.len(), before.launches.len());
    for (now, then) in profile.launches.iter().zip(&before.launches) {
        assert_eq!(
            (&now.kernel, &now.region, now.duration_ns),
            (&then.kernel, &then.region, then.duration_ns)
        );
        assert_eq!(now.metrics.len(), then.metrics.len());
        for (name, metric) in &then.metrics {
            assert_eq!(now.metrics[name].value, metric.value, "{name}");
        }
        // NVIDIA's messages quote no secret of ours.
        let texts = |launch: &rgpu_model::Launch| {
            launch
                .rules
                .iter()
                .map(|rule| rule.text.clone())
                .filter(|t| !t.contains("HF_TOKEN"))
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(now), texts(then));
    }
    assert_eq!(profile.kernel.source, "…/tiled.cu");
    assert_eq!(profile.ladder[0].rung, "ncu.asked");
    assert!(profile.gaps.iter().any(|gap| gap.code == "redacted"));
}
