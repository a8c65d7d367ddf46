//! `mdspace top`: a served array, live on the terminal: its members, the progress of a sweep, and the load.
//!
//! [`draw`] is a pure function of a [`Scene`]. The loop around it fetches scenes and reacts to keys.

use crate::command::clients::arguments::TopArguments;
use crate::command::clients::control::{client, view};
use crate::command::clients::figures::{Figures, time};
use crate::command::clients::iostat::measures;
use crate::command::clients::report::StatusView;
use crate::command::text::failure::Failure;
use control::Client;
use export::measure::{Done, Measures, Metered};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Gauge, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The content of the screen.
struct Scene {
    status: StatusView,
    figures: Figures,
    is_paused: bool,
}

/// Runs `mdspace top`.
pub(crate) fn run(arguments: &TopArguments) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() {
        return Err(
            Failure::refused("standard output is not a terminal").advise("`mdspace status --watch` works without one")
        );
    }
    let client = client(&arguments.array.wanted())?;
    let first = fetch(&client)?; // before the terminal is changed, so that a refusal stays visible
    let mut terminal = ratatui::try_init().map_err(|error| Failure::unwell(format!("the terminal: {error}")))?;
    let shown = show(&mut terminal, &client, first, Duration::from_secs_f64(arguments.interval));
    ratatui::restore();
    shown
}

fn fetch(client: &Client) -> Result<(StatusView, Measures), Failure> {
    Ok((view(&client.get("/v1/status")?)?, measures(client)?))
}

/// Shows the array until the user quits or the server ends.
fn show(
    terminal: &mut DefaultTerminal,
    client: &Client,
    (status, mut before): (StatusView, Measures),
    interval: Duration,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::unwell(format!("the terminal: {error}"));
    let mut scene = Scene { status, figures: Figures::averages(before.clone()), is_paused: false };
    let mut due = Instant::now() + interval;
    loop {
        terminal.draw(|frame| draw(frame, &scene)).map_err(failed)?;
        if event::poll(due.saturating_duration_since(Instant::now())).map_err(failed)? {
            match wish(&event::read().map_err(failed)?) {
                Some(Wish::Quit) => return Ok(()),
                Some(Wish::Pause) => scene.is_paused = !scene.is_paused,
                None => {}
            }
            continue;
        }
        due += interval;
        if !scene.is_paused {
            let (status, now) = fetch(client)?;
            scene.figures = Figures::between(&before, &now);
            (scene.status, before) = (status, now);
        }
    }
}

/// What the keys do.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    Pause,
}

fn wish(event: &Event) -> Option<Wish> {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else { return None };
    match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
        KeyCode::Char('p' | ' ') => Some(Wish::Pause),
        _ => None,
    }
}

/// Draws a scene.
fn draw(frame: &mut Frame<'_>, scene: &Scene) {
    let sweep = u16::from(scene.status.sweep().is_some());
    let heights = [Constraint::Length(2), Constraint::Length(sweep), Constraint::Length(4)];
    let [head, gauge, requests, members, keys] =
        Layout::vertical(heights.into_iter().chain([Constraint::Min(3), Constraint::Length(1)])).areas(frame.area());
    frame.render_widget(Paragraph::new(heading(scene)), head);
    draw_sweep(frame, &scene.status, gauge);
    frame.render_widget(Paragraph::new(request_lines(scene, requests.width)), requests);
    draw_members(frame, scene, members);
    let paused = if scene.is_paused { "  PAUSED" } else { "" };
    frame.render_widget(Paragraph::new(format!("q quit   p pause{paused}")).style(Modifier::DIM), keys);
}

fn color_of(state: &str) -> Color {
    match state {
        "in_sync" => Color::Green,
        "recovering" => Color::Yellow,
        "spare" => Color::Blue,
        _ => Color::Red,
    }
}

fn heading(scene: &Scene) -> Vec<Line<'static>> {
    let status = &scene.status;
    let color = if status.broken.is_some() {
        Color::Red
    } else if status.is_degraded() {
        Color::Yellow
    } else {
        Color::Green
    };
    let bold = Style::new().fg(color).add_modifier(Modifier::BOLD);
    let mut lines = vec![Line::from(Span::styled(status.headline(), bold))];
    match &status.broken {
        Some(reason) => lines.push(Line::from(Span::styled(format!("takes no writes: {reason}"), bold))),
        None => lines.push(Line::from(status.slots())),
    }
    lines
}

fn draw_sweep(frame: &mut Frame<'_>, status: &StatusView, area: Rect) {
    if let (Some((_, percent)), Some(label)) = (status.sweep(), status.sweep_line()) {
        // A label that is too long ends after a part, never within a number.
        let label = parts_fitting(label.trim().split_inclusive(", "), area.width);
        let label = label.trim_end_matches(", ").to_owned();
        let gauge = Gauge::default().ratio((percent / 100.0).clamp(0.0, 1.0)).label(label);
        frame.render_widget(gauge.gauge_style(Style::new().fg(Color::Yellow)), area);
    }
}

/// The first of `parts`, as many as have room in `width`.
fn parts_fitting<'a>(parts: impl Iterator<Item = &'a str>, width: u16) -> String {
    let mut text = String::new();
    for part in parts {
        if text.chars().count() + part.trim_end().chars().count() > usize::from(width) {
            break;
        }
        text += part;
    }
    text
}

fn request_lines(scene: &Scene, width: u16) -> Vec<Line<'static>> {
    let Scene { figures, .. } = scene;
    let requests = figures.requests();
    let line = |name: &str, done: &Done| {
        let tail = |share| done.latencies.quantile(share).map_or("-".to_owned(), time);
        let (rate, bytes) = (figures.rate(done.count), figures.bytes(done.bytes));
        let mean = done.mean_nanos().map_or("-".to_owned(), time);
        let parts = [
            format!("{name:8} {rate:>9.0}/s  {bytes:>14}"),
            format!("   mean {mean:>8}"),
            format!("  50 % {:>8}", tail(0.5)),
            format!("  99 % {:>8}", tail(0.99)),
        ];
        Line::from(parts_fitting(parts.iter().map(|part| &**part), width))
    };
    vec![
        line("reads", &requests.read),
        line("writes", &requests.write),
        line("flushes", &requests.flush),
        Line::from(format!("under way {}, {:.1} on average", requests.in_flight, figures.queue(requests))),
    ]
}

/// A column of the members' table: its heading, width and rank. A narrow terminal has no room for the highest ranks.
struct Column {
    heading: &'static str,
    width: u16,
    rank: u8,
}

/// The columns. The bar of a sweep gets the rest.
const COLUMNS: [Column; 9] = [
    Column { heading: "slot", width: 4, rank: 0 },
    Column { heading: "member", width: 20, rank: 0 },
    Column { heading: "state", width: 11, rank: 0 },
    Column { heading: "read", width: 13, rank: 2 },
    Column { heading: "written", width: 13, rank: 2 },
    Column { heading: "r_await", width: 8, rank: 3 },
    Column { heading: "w_await", width: 8, rank: 3 },
    Column { heading: "queue", width: 5, rank: 4 },
    Column { heading: "util", width: 5, rank: 1 },
];

/// The shortest bar.
const BAR_MIN: u16 = 5;

/// The highest rank whose columns have room in `width`, and the width of the bar then.
fn fitting(width: u16) -> (u8, u16) {
    let fixed = |most: u8| -> u16 {
        COLUMNS.iter().filter(|column| column.rank <= most).map(|column| column.width + 1).sum::<u16>() + 2
    };
    let most = (0..=4).rev().find(|most| fixed(*most) + BAR_MIN <= width).unwrap_or(0);
    (most, width.saturating_sub(fixed(most)).max(BAR_MIN))
}

fn draw_members(frame: &mut Frame<'_>, scene: &Scene, area: Rect) {
    let (most, bar) = fitting(area.width);
    let shown = || COLUMNS.iter().filter(move |column| column.rank <= most);
    let widths = shown().map(|column| column.width).chain([bar]);
    let swept = if scene.status.sweep().is_some() { "swept" } else { "" };
    let headings = shown().map(|column| column.heading).chain([swept]);
    let heading = Row::new(headings.collect::<Vec<_>>()).style(Modifier::BOLD);
    let rows = scene.status.places().map(|(slot, name, state)| {
        let (cells, bar) = member_cells(scene, slot, name, state, bar);
        let cells = cells.into_iter().zip(&COLUMNS).filter(|(_, column)| column.rank <= most).map(|(cell, _)| cell);
        Row::new(cells.chain([bar]).collect::<Vec<_>>())
    });
    let table = Table::new(rows, widths.map(Constraint::Length)).header(heading).block(Block::bordered());
    frame.render_widget(table, area);
}

/// The cells of a member's row, and its bar.
fn member_cells<'a>(
    scene: &Scene,
    slot: Option<u16>,
    name: &'a str,
    state: &'a str,
    bar: u16,
) -> ([Cell<'a>; 9], Cell<'a>) {
    let figures = &scene.figures;
    let nothing = Metered::default();
    let metered = figures.member(name).unwrap_or(&nothing);
    let mean = |done: &Done| done.mean_nanos().map_or("-".to_owned(), time);
    let style = Style::new().fg(color_of(state));
    // The end of a long path identifies it best.
    let room = usize::from(COLUMNS[1].width);
    let short: String = name.chars().skip(name.chars().count().saturating_sub(room)).collect();
    let swept = scene.status.sweep().filter(|_| matches!(state, "in_sync" | "recovering"));
    let cells = [
        Cell::from(slot.map_or("-".to_owned(), |slot| slot.to_string())),
        Cell::from(short),
        Cell::from(state).style(style),
        Cell::from(figures.bytes(metered.read.bytes)),
        Cell::from(figures.bytes(metered.write.bytes)),
        Cell::from(mean(&metered.read)),
        Cell::from(mean(&metered.write)),
        Cell::from(format!("{:.1}", figures.queue(metered))),
        Cell::from(format!("{:.0} %", figures.utilization(metered))),
    ];
    (cells, Cell::from(swept.map_or(String::new(), |(_, percent)| position(percent, bar))).style(style))
}

/// A bar, filled as far as a sweep has come.
fn position(percent: f64, width: u16) -> String {
    let filled = (percent / 100.0 * f64::from(width)).floor().clamp(0.0, f64::from(width)) as usize;
    "█".repeat(filled) + &"░".repeat(usize::from(width) - filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use export::measure::{Kind, MemberMeasures, Meter};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde::Deserialize;
    use serde_json::json;

    fn status(broken: Option<&str>) -> StatusView {
        let member = |slot: u16, name: &str, state: &str| json!({"name": name, "slot": slot, "state": state, "read_bytes": 0, "written_bytes": 0, "errors": 0});
        let body = json!({
            "uuid": "u", "name": "data", "metadata": "1.2", "level": "raid5", "layout": "left-symmetric",
            "chunk_bytes": 65536, "stripe_size_bytes": null, "array_bytes": 3_u64 << 30, "component_bytes": 1 << 30,
            "created": 0, "updated": 0, "raid_disks": 4, "in_sync": 2, "state": "active, degraded", "broken": broken,
            "read_only": false, "sync_action": "recover", "sweep_failure": null, "events": 7, "kernel": "avx2",
            "sweep": {"action": "recover", "done_bytes": 1 << 29, "total_bytes": 1 << 30, "percent": 50.0,
                      "bytes_per_second": 1 << 20, "seconds_left": 512},
            "bitmap": null, "missing": [3], "left_out": [], "served": {"nbd": "nbd://x", "clients": 1},
            "cache": {"bytes_max": 1, "bytes": 0, "recalled_bytes": 0, "waiting_bytes": 0},
            "members": [member(0, "/a/very/long/path/to/the/first.img", "in_sync"), member(1, "b.img", "in_sync"),
                        member(2, "c.img", "recovering")],
        });
        StatusView::deserialize(body).expect("it is a status")
    }

    fn screen(scene: &Scene, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is only memory");
        terminal.draw(|frame| draw(frame, scene)).expect("it is only memory");
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(line).collect()
    }

    fn scene(broken: Option<&str>) -> Scene {
        let meter = Meter::default();
        meter.begin(0);
        meter.end(Kind::Read, 4 << 20, 0, 2_000_000, true);
        let metered = meter.snapshot(1_000_000_000);
        let members = vec![MemberMeasures { name: "b.img".to_owned(), metered: metered.clone() }];
        let measures = Measures { nanos: 1_000_000_000, requests: metered, members };
        Scene { status: status(broken), figures: Figures::averages(measures), is_paused: false }
    }

    #[test]
    fn members_their_figures_and_the_sweeps_position_are_drawn() {
        let lines = screen(&scene(None), 130, 16);
        assert!(lines[0].starts_with("array \"data\": raid5, 3 GiB, active, degraded"), "{lines:#?}");
        assert!(lines[1].starts_with("[UU__]"), "{lines:#?}");
        assert!(lines[2].contains("recover: 50.0 % (512 MiB of 1 GiB)"), "{lines:#?}");
        assert!(lines[3].starts_with("reads            1/s         4 MiB/s   mean  2.00 ms"), "{lines:#?}");
        let line =
            |word: &str| lines.iter().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {lines:#?}"));
        assert!(line("b.img").contains("in_sync     4 MiB/s       0 bytes/s     2.00 ms  -"), "{lines:#?}");
        assert!(line("first.img").contains("ath/to/the/first.img"), "a path's end is shown: {lines:#?}");
        let bar = |word: &str| line(word).chars().filter(|c| *c == '█').count();
        let rest = line("c.img").chars().filter(|c| *c == '░').count();
        assert!(bar("c.img") > 5 && bar("c.img").abs_diff(rest) <= 1, "half of it: {lines:#?}");
        assert_eq!(bar("b.img"), bar("c.img"));
        assert_eq!(bar("missing"), 0);
        assert!(lines[15].starts_with("q quit"), "{lines:#?}");
    }

    #[test]
    fn an_array_that_takes_no_writes_says_why_and_small_terminals_are_survived() {
        let broken = scene(Some("two members failed"));
        assert!(screen(&broken, 100, 12)[1].starts_with("takes no writes: two members failed"));
        for (width, height) in [(1, 1), (10, 3), (40, 8), (300, 4)] {
            screen(&broken, width, height);
        }
    }

    #[test]
    fn a_narrower_terminal_shows_less_and_cuts_no_number() {
        let scene = scene(None);
        let words = |width| -> Vec<String> {
            let text = screen(&scene, width, 16).join("\n").replace(['│', '─', '┌', '┐', '└', '┘', '█', '░'], " ");
            text.split_whitespace().map(|word| word.trim_end_matches(',').to_owned()).collect()
        };
        let whole = words(200);
        for width in 60..200 {
            for word in words(width) {
                assert!(whole.contains(&word), "{width}: {word} is cut: {:#?}", screen(&scene, width, 16));
            }
            for word in ["in_sync", "recovering", "util", "50.0"] {
                assert!(words(width).contains(&word.to_owned()), "{width}: {word}: {:#?}", screen(&scene, width, 16));
            }
        }
    }

    #[test]
    fn keys_mean_what_the_last_line_says() {
        let key = |code| Event::Key(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(wish(&key(KeyCode::Char('q'))), Some(Wish::Quit));
        assert_eq!(wish(&key(KeyCode::Char('p'))), Some(Wish::Pause));
        assert_eq!(wish(&key(KeyCode::Char('c'))), None);
        assert_eq!(wish(&Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL))), Some(Wish::Quit));
        assert_eq!(wish(&Event::Resize(1, 1)), None);
    }
}
