//! Charts: one compared with a kept picture, and odd ones held to the rules that every picture keeps.

use foreread_report::chart::{Chart, Panel, Point, render};
use roxmltree::{Document, Node};
use std::path::Path;

/// Three lines over five values in two panels, with intervals and a gap.
fn usual() -> Chart {
    let x = [1.0, 2.0, 4.0, 8.0, 16.0];
    let point = |value: f64, half: f64| {
        Some(Point {
            value,
            interval: [value - half, value + half],
        })
    };
    let line =
        |values: [f64; 5], half: f64| values.iter().map(|v| point(*v, half)).collect::<Vec<_>>();
    let mut gap = line([12.0, 11.0, 9.0, 8.0, 7.5], 1.5);
    gap[2] = None;
    Chart {
        title: "interleaved on model:hdd-theory by streams".to_string(),
        note: "20 runs at each value; cache 256M; bars: 95% intervals".to_string(),
        x_title: "streams: streams in turn".to_string(),
        x: x.to_vec(),
        x_labels: x.iter().map(f64::to_string).collect(),
        lines: ["none", "linux-6.18", "rbd-plain"]
            .map(String::from)
            .to_vec(),
        panels: vec![
            Panel {
                title: "Throughput, MB/s".to_string(),
                points: vec![
                    line([2.0; 5], 0.0),
                    line([14.0, 13.5, 13.0, 12.0, 10.0], 0.4),
                    gap,
                ],
            },
            Panel {
                title: "Read, MB".to_string(),
                points: vec![line([1074.0; 5], 0.0); 3],
            },
        ],
    }
}

/// To keep a new picture: look at what the failing test has written, in both colour schemes, and copy it here.
#[test]
fn the_picture_is_as_it_was_kept() {
    let kept = include_str!("pictures/chart.svg");
    let got = render(&usual());
    if got != kept {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("chart.svg");
        std::fs::write(&path, &got).expect("written");
        let line = got.lines().zip(kept.lines()).find(|(a, b)| a != b);
        panic!(
            "the picture is not the kept one, first at {line:?}; the new one is {}",
            path.display()
        );
    }
}

#[test]
fn every_picture_keeps_the_rules() {
    let mut words = usual();
    words.x = vec![0.0, 1.0, 2.0, 3.0, 4.0];
    words.x_labels = ["off", "a little", "on", "<&\">", "\u{1b}]0;\u{0}"]
        .map(String::from)
        .to_vec();
    words.lines[1] = "a & <script>alert('x')</script> \"quoted\"".to_string();
    words.title = "<b>&".repeat(200);
    words.note = "long ".repeat(400);
    let mut wild = usual();
    let ends = [
        (0.0, f64::INFINITY),
        (-5.0, 3.0),
        (f64::NAN, f64::NAN),
        (1e300, 1e300),
        (3.0, 3.0),
    ];
    wild.panels[0].points[1] = ends
        .map(|(a, b)| {
            Some(Point {
                value: 3.0,
                interval: [a, b],
            })
        })
        .to_vec();
    wild.panels[1].points[0] = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e18]
        .map(|value| {
            Some(Point {
                value,
                interval: [value, value],
            })
        })
        .to_vec();
    let mut many = usual();
    many.x = (1..=64).map(f64::from).collect();
    many.x_labels = (1..=64).map(|i| format!("{}", u64::MAX - i)).collect();
    many.lines = (0..24)
        .map(|i| format!("linux-6.18:max={i}K,{}", "long".repeat(i)))
        .collect();
    let line: Vec<Option<Point>> = (0..64)
        .map(|i| f64::from(i) * 1e9)
        .map(|v| {
            Some(Point {
                value: v,
                interval: [v * 0.9, v * 1.1],
            })
        })
        .collect();
    many.panels
        .iter_mut()
        .for_each(|p| p.points = vec![line.clone(); 24]);
    let one = Chart {
        x: vec![7.0],
        x_labels: vec!["7".to_string()],
        ..usual()
    };
    let none = Chart {
        panels: vec![Panel::default()],
        ..Chart::default()
    };
    for (name, chart) in [
        ("usual", usual()),
        ("words", words),
        ("wild", wild),
        ("many", many),
        ("one", one),
        ("none", none),
    ] {
        holds(name, &render(&chart));
    }
}

fn number(node: &Node<'_, '_>, key: &str) -> f64 {
    let text = node
        .attribute(key)
        .unwrap_or_else(|| panic!("{} has no {key}", node.tag_name().name()));
    text.parse().unwrap_or_else(|_| panic!("{key}={text}"))
}

/// Well-formed, self-contained, everything on the paper, and what is measured inside the frames.
fn holds(name: &str, svg: &str) {
    let document = Document::parse(svg).unwrap_or_else(|error| panic!("{name}: {error}"));
    let root = document.root_element();
    let (width, height) = (number(&root, "width"), number(&root, "height"));
    assert!(
        width <= 480.0 && height < 4000.0,
        "{name}: {width} x {height}"
    );
    assert_eq!(
        root.attribute("viewBox"),
        Some(format!("0 0 {width} {height}").as_str()),
        "{name}"
    );
    for odd in ["NaN", "inf", "href", "url(", "<script", "@import"] {
        assert!(!svg.contains(odd), "{name}: {odd}");
    }
    assert!(
        root.descendants().any(|n| n.tag_name().name() == "title"),
        "{name} has no title"
    );
    for text in root.descendants().filter(|n| n.tag_name().name() == "text") {
        let (x, y) = (number(&text, "x"), number(&text, "y"));
        let letter = if text.attribute("class") == Some("name") {
            7.8
        } else {
            6.2
        };
        let long = text.text().unwrap_or("").chars().count() as f64 * letter;
        let left = x - match text.attribute("text-anchor") {
            Some("middle") => long / 2.0,
            Some("end") => long,
            _ => 0.0,
        };
        assert!(
            left >= -0.1 && left + long <= width + 0.1,
            "{name}: {:?} from {left} to {}",
            text.text(),
            left + long
        );
        assert!(y > 0.0 && y < height, "{name}: {:?} at {y}", text.text());
    }
    let frames = frames(&root);
    let inside = |x: f64, y: f64| {
        frames
            .iter()
            .any(|f| (f[0]..=f[2]).contains(&x) && (f[1]..=f[3]).contains(&y))
    };
    for (x, y) in measured(&root) {
        assert!(inside(x, y), "{name}: {x} {y} is not inside {frames:?}");
    }
}

/// Left, top, right and bottom of each frame: the lowest and the highest of the lines across that share their ends.
fn frames(root: &Node<'_, '_>) -> Vec<[f64; 4]> {
    let mut frames: Vec<[f64; 4]> = Vec::new();
    for node in root
        .children()
        .filter(|n| ["axis", "grid"].contains(&n.attribute("class").unwrap_or("")))
    {
        let places = numbers(node.attribute("d").expect("a path"));
        let [x1, y1, x2, y2] = places[..] else {
            panic!("{places:?}")
        };
        match frames.last_mut() {
            _ if y1 != y2 => {}
            // Ticks go up from the axis.
            Some(frame) if node.attribute("class") == Some("grid") => frame[1] = frame[1].min(y1),
            _ => frames.push([x1, y1, x2, y1]),
        }
    }
    frames
}

/// Every point of a line, every end of a bar, every marker, but for those of the legend, which is in front of all frames.
fn measured(root: &Node<'_, '_>) -> Vec<(f64, f64)> {
    let mut places = Vec::new();
    let before_frames =
        |n: &Node<'_, '_>| !["axis", "grid"].contains(&n.attribute("class").unwrap_or(""));
    for node in root.descendants().skip_while(before_frames) {
        let class = node.attribute("class").unwrap_or("");
        if class == "line" {
            places.extend(
                numbers(node.attribute("d").expect("a path"))
                    .chunks(2)
                    .map(|p| (p[0], p[1])),
            );
        } else if class == "bar" {
            // M x high V low M ...
            let ends = numbers(node.attribute("d").expect("a path"));
            assert!(ends[1] <= ends[2], "a bar upside down: {ends:?}");
            places.extend([(ends[0], ends[1]), (ends[0], ends[2])]);
        } else if class == "point" {
            let place = numbers(node.attribute("transform").expect("a place"));
            places.push((place[0], place[1]));
        }
    }
    places
}

fn numbers(text: &str) -> Vec<f64> {
    let parts = text.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'));
    parts
        .filter(|p| !p.is_empty())
        .map(|p| p.parse().unwrap_or_else(|_| panic!("{p}")))
        .collect()
}

/// A line is drawn in pieces around a gap, and the axis of factors has equal steps.
#[test]
fn gaps_and_steps() {
    let svg = render(&usual());
    let document = Document::parse(&svg).expect("well-formed");
    let lines: Vec<Vec<f64>> = document
        .descendants()
        .filter(|n| n.attribute("class") == Some("line"))
        .map(|n| numbers(n.attribute("d").expect("a path")))
        .collect();
    // Three of the legend, then none and linux-6.18 whole and rbd-plain in two pieces, then three whole ones.
    assert_eq!(
        lines.iter().map(|l| l.len() / 2).collect::<Vec<_>>(),
        [2, 2, 2, 5, 5, 2, 2, 5, 5, 5]
    );
    let steps: Vec<f64> = lines[3]
        .chunks(2)
        .map(|p| p[0])
        .collect::<Vec<_>>()
        .windows(2)
        .map(|w| w[1] - w[0])
        .collect();
    assert!(
        steps.iter().all(|s| (s - steps[0]).abs() < 0.15),
        "{steps:?}"
    );
    // 14 of 15 MB/s is higher than 10, and twice as high as 7.
    let y: Vec<f64> = lines[4].chunks(2).map(|p| p[1]).collect();
    assert!(y.is_sorted() && y[0] < y[4], "{y:?}");
    assert_eq!(
        svg.matches("class=\"bar\"").count(),
        9,
        "one for each point whose interval is wider than nothing"
    );
}

/// Values in any order give the same lines.
#[test]
fn values_are_drawn_from_left_to_right() {
    let mut turned = usual();
    turned.x.reverse();
    turned.x_labels.reverse();
    turned
        .panels
        .iter_mut()
        .flat_map(|p| &mut p.points)
        .for_each(|points| points.reverse());
    assert_eq!(render(&turned), render(&usual()));
}
