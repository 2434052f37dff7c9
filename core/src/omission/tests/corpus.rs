//! Replays the corpus of the fuzz target `compact_packets` without a fuzzer.
//!
//! `cargo test -p mpip-core compact_packet_seeds -- --ignored` writes the seeds anew after a change
//! of the format.
#![allow(clippy::disallowed_methods, reason = "corpora are files")]

use std::path::PathBuf;

use mpip_wire::{Frame, FrameWriter};

use super::*;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/compact_packets")
}

/// Seeds whose name begins with `bad-` must not be restored, other seeds must; the names that a
/// fuzzer gives (40 hexadecimal digits) promise nothing.
#[test]
fn corpus_of_compact_packets_holds() {
    let mut seeds = 0;
    for entry in fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let holds = check::compact_packets(&fs::read(&path).unwrap());
        if name.len() != 40 {
            assert_eq!(holds, !name.starts_with("bad-"), "{name}");
            seeds += 1;
        }
    }
    assert!(seeds >= 10, "{seeds} seeds");
}

#[test]
#[ignore = "writes the corpus"]
fn write_the_compact_packet_seeds() {
    fs::create_dir_all(directory()).unwrap();
    let small = Plan { payload: b"payload".to_vec(), ..Plan::full(100) };
    let odd = Plan {
        class: 3,
        hops: 1,
        identification: 0xabcd,
        fragment: 0,
        flow: 0x1_2345,
        flags: 0xfff,
        urgent: 1,
        options: [&small.options[..], &[1, 1, 5, 10, 1, 2, 3, 4, 5, 6, 7, 8]].concat(),
        udp_checksum: false,
        ..small.clone()
    };
    for (version, v6) in [("v4", false), ("v6", true)] {
        for (name, protocol) in [("tcp", 6), ("udp", 17), ("sctp", 132)] {
            let session = Session { v6, protocol };
            for (kind, plan) in [("usual", &small), ("odd", &odd)] {
                let packet = plan.packet(session);
                let compact = session.header().compress(9, &packet).unwrap();
                let form = compact_form(&compact, &packet);
                write(&format!("{name}-{version}-{kind}"), session, &form);
            }
        }
    }
    write("bad-header-cut", Session::TCP, &[0x08, 1, 2, 3]);
    write("bad-control", Session { v6: true, protocol: 17 }, &[0x10, 1, 2, 3]);
    let options = [&[0x80][..], &[0; 10], &[11], &[1; 44]].concat();
    write("bad-options-too-long", Session::TCP, &options);
}

fn write(name: &str, session: Session, form: &[u8]) {
    let fields = fields(7, &Plan::full(100).packet(session)).unwrap();
    let header = CompactFrameHeader {
        session: SessionId(5),
        sequence: TruncatedSequence::new(9),
        ordered: true,
    };
    let mut buffer = [0; 2_048];
    let mut writer = FrameWriter::new(&mut buffer);
    writer.push(&Frame::SessionOpen { session: SessionId(5), fields }).unwrap();
    writer.push(&Frame::CompactPacket { header, compact: form }).unwrap();
    let len = writer.len();
    fs::write(directory().join(name), &buffer[..len]).unwrap();
}
