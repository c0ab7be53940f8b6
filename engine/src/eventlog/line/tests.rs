//! Parsing the line of any event or action gives that event or action again.

use super::*;

const READ: ReadId = ReadId(u64::MAX);
const OPEN: OpenId = OpenId(u32::MAX);
const FILE: FileId = FileId(0);
const FETCH: FetchId = FetchId(7 << 32);

fn events() -> Vec<Event> {
    let mut all = events_of_readers();
    all.extend(events_of_sources());
    all
}

/// Events from readers and from the files' owner.
fn events_of_readers() -> Vec<Event> {
    let (read, open, file) = (READ, OPEN, FILE);
    let range = ByteRange::between(1, 1 << 62);
    let mut all = vec![
        Event::Open {
            open,
            file,
            size: 1 << 62,
        },
        Event::Close { open },
        Event::Forget { file },
        Event::List {
            file,
            size: 1 << 62,
            after: None,
            planned: false,
        },
        Event::List {
            file,
            size: 0,
            after: Some(FileId(u32::MAX)),
            planned: true,
        },
        Event::Read {
            read,
            open,
            range,
            random: true,
        },
        Event::Read {
            read,
            open,
            range,
            random: false,
        },
        Event::Hit { read, open, range },
        Event::Accessed {
            open,
            at: 7,
            code: true,
        },
        Event::Unmapped {
            file,
            number: 3,
            pages: u64::MAX,
        },
        Event::Prefetch { open, range },
        Event::Invalidate { file, range },
        Event::Changed { file, size: 0 },
        Event::Grown {
            file,
            size: u64::MAX,
        },
    ];
    for &(advice, _) in Advice::ALL {
        all.push(Event::Advise {
            open,
            advice,
            range,
        });
        for executable in [false, true] {
            all.push(Event::Fault {
                read,
                open,
                at: 5,
                map: Mapping {
                    range,
                    executable,
                    advice,
                },
            });
        }
    }
    all
}

/// Events from the source: answers, and known properties.
fn events_of_sources() -> Vec<Event> {
    let (read, fetch) = (READ, FETCH);
    let mut all = vec![
        Event::Progress { fetch, bytes: 1 },
        Event::Answered { ns: u64::MAX },
        Event::AtHand { fetch },
        Event::Done {
            fetch,
            bytes: u64::MAX,
        },
        Event::Abandon { read },
        Event::Release { lease: LeaseId(9) },
        Event::Pressure { pages: 12 },
        Event::Timer,
    ];
    let errors = [
        Error::Io(i32::MIN),
        Error::Io(5),
        Error::Short,
        Error::Changed,
        Error::Limit,
    ];
    all.extend(errors.map(|error| Event::Failed { fetch, error }));
    all
}

fn actions() -> Vec<Action> {
    let (read, file, fetch) = (ReadId(3), FileId(u32::MAX), FetchId(u64::MAX));
    let range = ByteRange::between(0, 0);
    let mut all = vec![
        Action::Cancel { fetch },
        Action::Drop {
            slot: GroupSlot(4),
            file,
            number: 1 << 50,
            pages: u64::MAX,
        },
        Action::WakeAt {
            at: Nanos(u64::MAX),
        },
    ];
    for &(class, _) in Class::ALL {
        all.push(Action::Submit {
            fetch,
            file,
            range,
            class,
        });
    }
    for last in [false, true] {
        all.push(Action::Serve {
            read,
            lease: LeaseId(u32::MAX),
            file,
            range,
            last,
        });
    }
    let errors = [Error::Io(5), Error::Short, Error::Changed, Error::Limit];
    all.extend(errors.map(|error| Action::Fail { read, error }));
    all
}

#[test]
fn every_variant_there_and_back() {
    for (i, event) in events().into_iter().enumerate() {
        let mut line = String::new();
        write_event(&mut line, Nanos(i as u64), &event);
        assert_eq!(
            parse_event(&line),
            Ok(TimedEvent {
                at: Nanos(i as u64),
                event
            }),
            "{line}"
        );
        assert!(parse_event(&format!("{} more", line.trim_end())).is_err());
        assert!(parse_event(line.trim_end().rsplit_once(' ').expect("fields").0).is_err());
    }
    for action in actions() {
        let mut line = String::new();
        write_action(&mut line, &action);
        assert_eq!(parse_action(&line), Ok(action), "{line}");
        assert!(parse_action(&format!("{} more", line.trim_end())).is_err());
    }
}

#[test]
fn odd_lines_are_errors() {
    for line in [
        "",
        "E",
        "E x timer",
        "E +1 timer",
        "E 1 tea",
        "E 1 read 1 1 4611686018427387904 1 0",
        "A timer",
    ] {
        assert!(parse_event(line).is_err(), "{line}");
    }
    for line in [
        "A drop 1 1 1 12",
        "A drop 1 1 1 0x+1",
        "A serve 1 1 1 0 1 maybe",
        "A cancel -1",
        "E 1 timer",
    ] {
        assert!(parse_action(line).is_err(), "{line}");
    }
    let config = Config::new(PageSize::new(512).expect("a page"), 1 << 30);
    assert_eq!(parse_config(&config_line(&config)), Ok(config));
    assert!(parse_config("config page=4096").is_err());
    assert!(parse_config(&config_line(&config).replace("page=512", "page=513")).is_err());
}
