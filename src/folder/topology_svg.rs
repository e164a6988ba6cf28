//! `topology.svg`: the ring as a picture that an operator prints and holds against the cables.
//!
//! A4 landscape, black and white is enough (line styles say what colours say), no script, no font
//! of its own. Every coordinate is an integer, so the picture is the same to the byte everywhere.
//!
//! The hosts stand around the edge of a grid in ring order, clockwise on paper as in the ring;
//! the two domains' diagonals are in the middle, a table of them below. A text that is too long
//! for its place is cut in its middle and carries the whole as its `<title>`.

use std::borrow::Cow;
use std::fmt::{Display, Write};

use crate::names::HostName;
use crate::plan::mesh::DOMAINS;
use crate::plan::ring::Direction;
use crate::plan::{HostPlan, PathKind, PathRow, Plan, PortRow, RuleRow};

// Units: 1/40 mm, so that A4 landscape is 11880 x 8400 and every length is a whole number. A page
// that needs more is larger in units and printed smaller.

/// A4 landscape, mm.
const PAPER: (i32, i32) = (297, 210);
/// Edge that printers leave white, 7.5 mm.
const MARGIN: i32 = 300;

/// A size of text and what follows from it.
#[derive(Clone, Copy)]
struct Font {
    class: &'static str,
    /// Width of a character. Monospace fonts are 0.6 em wide or a hair more.
    advance: i32,
    /// Height of a line.
    line: i32,
}

/// 100 units, 7 pt.
const BODY: Font = Font {
    class: "b",
    advance: 61,
    line: 130,
};
/// 86 units, 6 pt.
const SMALL: Font = Font {
    class: "s",
    advance: 52,
    line: 112,
};
/// 130 units, 9 pt, bold.
const HEAD: Font = Font {
    class: "h",
    advance: 79,
    line: 190,
};
/// 150 units, 11 pt, bold.
const TITLE: Font = Font {
    class: "t",
    advance: 91,
    line: 200,
};

const STYLE: &str = "\
text{font-family:'DejaVu Sans Mono','Liberation Mono',Menlo,'Courier New',monospace;fill:#000}\
.b{font-size:100px}.s{font-size:86px}.h{font-size:130px;font-weight:bold}.t{font-size:150px;font-weight:bold}\
.m{text-anchor:middle}.e{text-anchor:end}.w{font-weight:bold}\
.box{fill:#fff;stroke:#000;stroke-width:12}.band{fill:#e4e4e4;stroke:#000;stroke-width:12}\
.rule{stroke:#999;stroke-width:5}.ring{stroke:#999;stroke-width:10;fill:none}.node{fill:#fff;stroke:#000;stroke-width:12}\
.d0{stroke:#0b4f9e;stroke-width:32;fill:none}.d1{stroke:#b34700;stroke-width:32;fill:none;stroke-dasharray:90 50}\
.c0{stroke:#0b4f9e;stroke-width:20;fill:none}.c1{stroke:#b34700;stroke-width:20;fill:none;stroke-dasharray:70 40}";

/// Width of a host's box: a port's columns.
const BOX: i32 = 2 * PAD + COLUMNS_END;
const PAD: i32 = 70;
/// Columns of a port in its box: HCA index and domain; netdev and address; RDMA device and MAC;
/// facing and PCI address; the end.
const COLUMN_NETDEV: i32 = 8 * BODY.advance;
const COLUMN_RDMA: i32 = COLUMN_NETDEV + 20 * BODY.advance;
const COLUMN_FACING: i32 = COLUMN_RDMA + 20 * BODY.advance;
const COLUMNS_END: i32 = COLUMN_FACING + 25 * BODY.advance;

/// Room between boxes of a row: the two port names of a cable, 15 characters each.
const GAP: i32 = 32 * SMALL.advance + 60;
/// Room between rows of boxes: port name, subnet, port name; and the diagonals in the middle.
const ROW_GAP: i32 = 1350;
/// From a box's outer edge to the first line of a cable below or above it: a subnet's 18 characters.
const VERTICAL_CABLE: i32 = 20 * SMALL.advance;
/// Between the two lines of a vertical cable.
const VERTICAL_PAIR: i32 = 180;
/// From a box's middle to each line of a horizontal cable.
const HORIZONTAL_PAIR: i32 = 260;
/// Least width of the picture of one domain's diagonals.
const DIAGONALS_WIDTH: i32 = 2700;

/// `topology.svg` of `plan`.
pub fn topology_svg(plan: &Plan) -> String {
    let hosts: Vec<HostPlan> = plan
        .ring
        .iter()
        .filter_map(|h| plan.for_host(h.as_str()))
        .collect();
    let page = Page::of(plan, &hosts);
    let mut svg = Svg::default();
    svg.line(format_args!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>"));
    svg.line(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}mm\" height=\"{}mm\" viewBox=\"0 0 {} {}\">",
        PAPER.0, PAPER.1, page.width, page.height
    ));
    svg.line(format_args!(
        "<title>{}</title>",
        escaped(&format!(
            "Hairpin mesh: {}",
            each_shortened(&plan.ring, LONGEST_HOST).join(" - ")
        ))
    ));
    svg.line(format_args!("<style>{STYLE}</style>"));
    svg.line(format_args!(
        "<defs><marker id=\"arrow\" viewBox=\"0 0 10 10\" refX=\"7\" refY=\"5\" markerWidth=\"100\" markerHeight=\"100\" \
         markerUnits=\"userSpaceOnUse\" orient=\"auto-start-reverse\"><path d=\"M0 0L10 5L0 10z\"/></marker></defs>"
    ));
    svg.line(format_args!(
        "<rect width=\"{}\" height=\"{}\" fill=\"#fff\"/>",
        page.width, page.height
    ));
    heading(&mut svg, plan, &page);
    for rank in 0..page.places.len() {
        cable(&mut svg, plan, &page, rank);
    }
    for (rank, host) in hosts.iter().enumerate() {
        host_box(&mut svg, plan, &page, rank, host);
    }
    diagonals_picture(&mut svg, plan, &page);
    let bottom = diagonals_table(&mut svg, plan, &page);
    legend(&mut svg, plan, &page, bottom);
    svg.line(format_args!("</svg>"));
    svg.text
}

/// Where a host stands: column and row of the grid, and how many columns its box takes.
#[derive(Clone, Copy, PartialEq)]
struct Place {
    column: i32,
    row: i32,
    columns: i32,
}

/// The measures of a page.
struct Page {
    width: i32,
    height: i32,
    columns: i32,
    rows: i32,
    gap: i32,
    row_gap: i32,
    box_height: i32,
    /// By ring rank.
    places: Vec<Place>,
}

impl Page {
    fn of(plan: &Plan, hosts: &[HostPlan]) -> Page {
        let (columns, rows, places) = places(hosts.len() as i32);
        let box_height = hosts.iter().map(host_box_height).max().unwrap_or(0);
        let gap = if rows > 2 && columns == 2 {
            DIAGONALS_WIDTH
        } else {
            GAP
        };
        let mut page = Page {
            width: 0,
            height: 0,
            columns,
            rows,
            gap,
            row_gap: ROW_GAP,
            box_height,
            places,
        };
        page.width = 2 * MARGIN + columns * BOX + (columns - 1) * gap;
        page.height = page.table_top() + table_height(plan) + LEGEND_HEIGHT + MARGIN;
        // To the proportions of the paper, with what is left over between the boxes.
        let height = page.width * PAPER.1 / PAPER.0;
        if page.height < height {
            page.row_gap += (height - page.height) / (rows - 1);
            page.height = height;
        } else {
            let width = page.height * PAPER.0 / PAPER.1;
            page.gap += (width - page.width) / (columns - 1);
            page.width = width;
        }
        page
    }

    fn boxes_top(&self) -> i32 {
        MARGIN + HEADING_HEIGHT
    }

    fn table_top(&self) -> i32 {
        self.row_top(self.rows - 1) + self.box_height + 130
    }

    fn row_top(&self, row: i32) -> i32 {
        self.boxes_top() + row * (self.box_height + self.row_gap)
    }

    fn column_left(&self, column: i32) -> i32 {
        MARGIN + column * (BOX + self.gap)
    }

    /// Left, top, right and bottom of a host's box.
    fn rect(&self, place: Place) -> (i32, i32, i32, i32) {
        let left = self.column_left(place.column);
        let right = self.column_left(place.column + place.columns - 1) + BOX;
        let top = self.row_top(place.row);
        (left, top, right, top + self.box_height)
    }

    /// Left, top, right and bottom of the free middle.
    fn middle(&self) -> (i32, i32, i32, i32) {
        let (top, bottom) = (
            self.row_top(0) + self.box_height,
            self.row_top(self.rows - 1),
        );
        let (left, right) = (
            self.column_left(0),
            self.column_left(self.columns - 1) + BOX,
        );
        let side = if self.rows == 2 {
            2 * VERTICAL_CABLE + VERTICAL_PAIR
        } else {
            BOX
        };
        (left + side, top, right - side, bottom)
    }
}

/// The places of a ring of `size`, clockwise from the top left, with the grid's columns and rows.
/// More than four hosts stand on the sides as well; where a side is short of a host its cable is
/// longer. A bottom row of one host takes the whole width.
fn places(size: i32) -> (i32, i32, Vec<Place>) {
    // Twice the columns are on top and at the bottom; a page is wider than high.
    let columns = if size <= 6 { 2 } else { (size - 1) / 2 };
    let bottom = (size - columns).clamp(0, columns);
    let sides = size - columns - bottom;
    let right = (sides + 1) / 2;
    let rows = 2 + right;
    let at = |column, row| Place {
        column,
        row,
        columns: 1,
    };
    let mut places: Vec<Place> = (0..columns.min(size)).map(|column| at(column, 0)).collect();
    places.extend((0..right).map(|i| at(columns - 1, 1 + i)));
    if bottom == 1 {
        places.push(Place {
            column: 0,
            row: rows - 1,
            columns,
        });
    } else {
        places.extend((0..bottom).rev().map(|column| at(column, rows - 1)));
    }
    places.extend((0..sides - right).map(|i| at(0, rows - 2 - i)));
    (columns, rows, places)
}

const HEADING_HEIGHT: i32 = TITLE.line + BODY.line + 100;

fn heading(svg: &mut Svg, plan: &Plan, page: &Page) {
    let ring = |each| {
        let mut names = each_shortened(&plan.ring, each);
        names.extend(names.first().cloned());
        format!("Hairpin mesh: {}", names.join(" - "))
    };
    let wanted = match plan.hairpin_queue_wanted {
        Some(wanted) if wanted != plan.hairpin_queue_size => format!(" (wanted {wanted})"),
        _ => String::new(),
    };
    let facts = |each| {
        format!(
            "size cap {} bytes | hairpin queue {} packets{wanted} | GID index {} | MTU {} | {} paths per opposite pair | \
             TP order: {}",
            plan.size_cap_bytes,
            plan.hairpin_queue_size,
            plan.gid_index,
            plan.mtu,
            plan.opposite_paths.number(),
            each_shortened(&plan.hosts, each).join(", ")
        )
    };
    let lines: [(Font, &dyn Fn(usize) -> String); 2] = [(TITLE, &ring), (BODY, &facts)];
    for ((font, line), i) in lines.into_iter().zip(0..) {
        let fits =
            |text: &str| text.chars().count() as i32 * font.advance <= page.width - 2 * MARGIN;
        // The longest names with which the line fits.
        let text = (3..=LONGEST_HOST)
            .rev()
            .map(line)
            .find(|t| fits(t))
            .unwrap_or_else(|| line(3));
        svg.text(
            MARGIN,
            MARGIN + 130 + i * TITLE.line,
            font,
            Anchor::Start,
            &text,
            Some(&line(LONGEST_HOST)),
        );
    }
}

/// Characters of the longest host name.
const LONGEST_HOST: usize = 128;

fn each_shortened(hosts: &[HostName], most: usize) -> Vec<Cow<'_, str>> {
    hosts.iter().map(|h| shortened(h.as_str(), most)).collect()
}

/// Markers and rules that share a line of a box.
const MARKERS_PER_LINE: usize = 4;
const RULES_PER_LINE: usize = 10;

fn host_box_height(host: &HostPlan) -> i32 {
    let lines = host.routes.len()
        + host.neighbours.len()
        + host.markers.len().div_ceil(MARKERS_PER_LINE)
        + host.rules.len().div_ceil(RULES_PER_LINE);
    HEAD.line + host.ports.len() as i32 * (2 * BODY.line + 30) + lines as i32 * SMALL.line + 90
}

fn host_box(svg: &mut Svg, plan: &Plan, page: &Page, rank: usize, host: &HostPlan) {
    let (left, top, right, bottom) = page.rect(page.places[rank]);
    svg.rect("box", left, top, right, bottom);
    svg.rect("band", left, top, right, top + HEAD.line);
    let tp = plan
        .hosts
        .iter()
        .position(|h| h == host.host)
        .map_or_else(|| "?".into(), |tp| tp.to_string());
    let ranks = format!("TP rank {tp}, ring rank {rank}");
    let ranks_width = ranks.len() as i32 * BODY.advance;
    svg.cut(
        left + PAD,
        top + 138,
        HEAD,
        Anchor::Start,
        host.host.as_str(),
        right - left - 2 * PAD - ranks_width - HEAD.advance,
    );
    svg.text(right - PAD, top + 130, BODY, Anchor::End, &ranks, None);

    let x = left + PAD;
    let mut y = top + HEAD.line;
    for (index, port) in host.ports.iter().enumerate() {
        if index > 0 {
            svg.path("rule", format_args!("M{left} {}H{right}", y + 5));
        }
        y += BODY.line;
        svg.text(x, y, BODY, Anchor::Start, &format!("HCA {index}"), None);
        svg.cut(
            x + COLUMN_NETDEV,
            y,
            BODY.bold(),
            Anchor::Start,
            port.netdev.as_str(),
            19 * BODY.advance,
        );
        svg.cut(
            x + COLUMN_RDMA,
            y,
            BODY,
            Anchor::Start,
            port.rdma.as_str(),
            19 * BODY.advance,
        );
        let facing = format!("{} to ", short_direction(port.direction));
        svg.text(x + COLUMN_FACING, y, BODY, Anchor::Start, &facing, None);
        let after = x + COLUMN_FACING + facing.len() as i32 * BODY.advance;
        svg.cut(
            after,
            y,
            BODY,
            Anchor::Start,
            port.peer_host.as_str(),
            left + BOX - PAD - after,
        );
        y += BODY.line;
        svg.text(
            x,
            y,
            BODY,
            Anchor::Start,
            &format!("dom {}", port.domain),
            None,
        );
        svg.text(
            x + COLUMN_NETDEV,
            y,
            BODY,
            Anchor::Start,
            &port.ipv4.to_string(),
            None,
        );
        svg.text(
            x + COLUMN_RDMA,
            y,
            BODY,
            Anchor::Start,
            &port.mac.to_string(),
            None,
        );
        if let Some(pci) = port.pci {
            svg.text(
                x + COLUMN_FACING,
                y,
                BODY,
                Anchor::Start,
                &format!("PCI {pci}"),
                None,
            );
        }
        y += 30;
    }
    y += 30;
    svg.path("rule", format_args!("M{left} {y}H{right}"));

    let value = x + COLUMN_NETDEV;
    let label = |svg: &mut Svg, y: &mut i32, what: &str, first: bool| {
        *y += SMALL.line;
        if first {
            svg.text(x, *y, SMALL.bold(), Anchor::Start, what, None);
        }
    };
    for (i, route) in host.routes.iter().enumerate() {
        label(svg, &mut y, "routes", i == 0);
        let gateway = route
            .gateway
            .map_or_else(|| "scope link".to_owned(), |g| format!("via {g}"));
        let text = format!(
            "{} {gateway} dev {} src {}",
            route.destination, route.dev, route.src
        );
        svg.cut(
            value,
            y,
            SMALL,
            Anchor::Start,
            &text,
            left + BOX - PAD - value,
        );
    }
    for (i, neighbour) in host.neighbours.iter().enumerate() {
        label(svg, &mut y, "neigh", i == 0);
        let text = format!(
            "{} lladdr {} dev {}",
            neighbour.address, neighbour.mac, neighbour.dev
        );
        svg.cut(
            value,
            y,
            SMALL,
            Anchor::Start,
            &text,
            left + BOX - PAD - value,
        );
    }
    for (i, markers) in host.markers.chunks(MARKERS_PER_LINE).enumerate() {
        label(svg, &mut y, "markers", i == 0);
        let each = (left + BOX - PAD - value) / MARKERS_PER_LINE as i32;
        for (marker, i) in markers.iter().zip(0..) {
            svg.cut(
                value + i * each,
                y,
                SMALL,
                Anchor::Start,
                marker.device.as_str(),
                each - SMALL.advance,
            );
        }
    }
    for (i, rules) in host.rules.chunks(RULES_PER_LINE).enumerate() {
        label(svg, &mut y, "rules", i == 0);
        let text = rules
            .iter()
            .map(|r| r.pref.to_string())
            .collect::<Vec<_>>()
            .join(", ");
        svg.text(value, y, SMALL, Anchor::Start, &text, None);
    }
}

/// The cable from ring rank `rank` clockwise: one line for each domain.
fn cable(svg: &mut Svg, plan: &Plan, page: &Page, rank: usize) {
    let next = Direction::Clockwise.step(rank, page.places.len());
    let (from, to) = (page.places[rank], page.places[next]);
    for domain in 0..DOMAINS {
        let Some(near) = plan.ports.iter().find(|p| {
            plan.ring.get(rank) == Some(&p.host)
                && p.domain == domain
                && p.direction == Direction::Clockwise
        }) else {
            continue;
        };
        let far = plan.peer(near);
        let far_name = near.peer_netdev.as_str();
        let mut subnet = subnet(near, far);
        let class = if domain == 0 { "d0" } else { "d1" };
        let name_room = 15 * SMALL.advance;
        if from.row == to.row {
            // The clockwise end is right in the top row and left in the bottom row.
            let rightwards = from.column < to.column;
            let (a, b) = if rightwards { (from, to) } else { (to, from) };
            if !rightwards {
                subnet.reverse();
            }
            let (left, top, right) = (page.rect(a).2, page.rect(a).1, page.rect(b).0);
            let middle = top + page.box_height / 2;
            let y = if domain == 0 {
                middle - HORIZONTAL_PAIR
            } else {
                middle + HORIZONTAL_PAIR
            };
            let (left_name, right_name) = if rightwards {
                (near.netdev.as_str(), far_name)
            } else {
                (far_name, near.netdev.as_str())
            };
            svg.path(class, format_args!("M{left} {y}H{right}"));
            svg.cut(
                left + 25,
                y - 50,
                SMALL,
                Anchor::Start,
                left_name,
                name_room,
            );
            svg.cut(
                right - 25,
                y - 50,
                SMALL,
                Anchor::End,
                right_name,
                name_room,
            );
            let centre = (left + right) / 2;
            svg.text(
                centre,
                y + 110,
                SMALL,
                Anchor::Middle,
                &format!("domain {domain}"),
                None,
            );
            for (line, text) in subnet.iter().zip(1..) {
                svg.text(
                    centre,
                    y + 110 + text * SMALL.line,
                    SMALL,
                    Anchor::Middle,
                    line,
                    None,
                );
            }
        } else {
            let downwards = from.row < to.row;
            let (a, b) = if downwards { (from, to) } else { (to, from) };
            if !downwards {
                subnet.reverse();
            }
            let (top, bottom) = (page.rect(a).3, page.rect(b).1);
            // The right edge of the page goes down, the left edge up.
            let x = match (downwards, domain) {
                (true, 0) => page.rect(a).2 - VERTICAL_CABLE - VERTICAL_PAIR,
                (true, _) => page.rect(a).2 - VERTICAL_CABLE,
                (false, 0) => page.rect(a).0 + VERTICAL_CABLE,
                (false, _) => page.rect(a).0 + VERTICAL_CABLE + VERTICAL_PAIR,
            };
            let (top_name, bottom_name) = if downwards {
                (near.netdev.as_str(), far_name)
            } else {
                (far_name, near.netdev.as_str())
            };
            svg.path(class, format_args!("M{x} {top}V{bottom}"));
            let (x, anchor) = if domain == 0 {
                (x - 50, Anchor::End)
            } else {
                (x + 50, Anchor::Start)
            };
            svg.cut(x, top + SMALL.line, SMALL, anchor, top_name, name_room);
            svg.cut(x, bottom - 40, SMALL, anchor, bottom_name, name_room);
            let middle = (top + bottom) / 2;
            svg.text(x, middle, SMALL, anchor, &format!("domain {domain}"), None);
            for (line, text) in subnet.iter().zip(1..) {
                svg.text(x, middle + text * SMALL.line, SMALL, anchor, line, None);
            }
        }
    }
}

/// What names the subnet of a cable, in one or two lines: the network, or both addresses where the
/// prefix is not known (a plan from a topology document has /32 everywhere).
fn subnet(near: &PortRow, far: Option<&PortRow>) -> Vec<String> {
    match far {
        Some(far) if near.ipv4.prefix == 32 => {
            vec![near.ipv4.address.to_string(), far.ipv4.address.to_string()]
        }
        _ => vec![near.ipv4.network().to_string()],
    }
}

fn short_direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Clockwise => "cw",
        Direction::CounterClockwise => "ccw",
    }
}

/// The diagonals with the rules that carry them.
fn diagonals(plan: &Plan) -> impl Iterator<Item = (&PathRow, &RuleRow)> {
    plan.paths
        .iter()
        .filter(|p| p.kind == PathKind::Diagonal)
        .zip(&plan.rules)
}

/// The way around the ring that a path sets out on.
fn direction(plan: &Plan, path: &PathRow) -> Option<Direction> {
    plan.ports
        .iter()
        .find(|p| p.host == path.from && p.rdma == path.device)
        .map(|p| p.direction)
}

/// One small ring for each domain, with a curve past every node that diagonals cross.
fn diagonals_picture(svg: &mut Svg, plan: &Plan, page: &Page) {
    let (left, top, right, bottom) = page.middle();
    let beside = right - left >= 2 * DIAGONALS_WIDTH;
    for domain in 0..DOMAINS {
        let i = domain as i32;
        let (width, height) = if beside {
            ((right - left) / 2, bottom - top)
        } else {
            (right - left, (bottom - top) / 2)
        };
        let (x, y) = if beside {
            (left + i * width, top)
        } else {
            (left, top + i * height)
        };
        let centre = (x + width / 2, y + height / 2 + 60);
        let title = format!("diagonals, domain {domain}");
        // No larger than reads well: the rest of the room stays free.
        let half = (
            (width / 2 - LABEL).clamp(200, 900),
            (height / 2 - 330).clamp(200, 700),
        );
        // Above the text of a node in the middle of the top row, when there is one.
        let above = if page.columns > 2 {
            210 + 3 * SMALL.line
        } else {
            210
        };
        svg.text(
            centre.0,
            centre.1 - half.1 - above,
            SMALL.bold(),
            Anchor::Middle,
            &title,
            None,
        );
        one_domain(svg, plan, page, domain, centre, half);
    }
}

/// Room for the text beside a node of the small rings.
const LABEL: i32 = 14 * SMALL.advance + 150;

fn one_domain(
    svg: &mut Svg,
    plan: &Plan,
    page: &Page,
    domain: usize,
    centre: (i32, i32),
    half: (i32, i32),
) {
    let size = page.places.len();
    let at = |rank: usize| {
        let place = page.places[rank];
        // Twice the middle of the box in columns, from -(columns - 1) to columns - 1.
        let column = 2 * place.column + place.columns - page.columns;
        let row = 2 * place.row - (page.rows - 1);
        (
            centre.0 + half.0 * column / (page.columns - 1),
            centre.1 + half.1 * row / (page.rows - 1),
        )
    };
    let towards = |from: (i32, i32), to: (i32, i32), percent: i32| {
        (
            from.0 + (to.0 - from.0) * percent / 100,
            from.1 + (to.1 - from.1) * percent / 100,
        )
    };
    let corners: Vec<String> = (0..size)
        .map(|rank| format!("{} {}", at(rank).0, at(rank).1))
        .collect();
    svg.path("ring", format_args!("M{}z", corners.join("L")));
    let class = if domain == 0 { "c0" } else { "c1" };
    for via in 0..size {
        let (before, after) = (
            Direction::CounterClockwise.step(via, size),
            Direction::Clockwise.step(via, size),
        );
        let crossing: Vec<(Direction, &RuleRow)> = diagonals(plan)
            .filter(|(path, _)| path.domain == domain && path.via.as_ref() == plan.ring.get(via))
            .filter_map(|(path, rule)| Some((direction(plan, path)?, rule)))
            .collect();
        let of = |way| {
            crossing
                .iter()
                .find(|(direction, _)| *direction == way)
                .map(|(_, rule)| rule.pref)
        };
        let (clockwise, counter) = (of(Direction::Clockwise), of(Direction::CounterClockwise));
        if !crossing.is_empty() {
            let bend = towards(at(via), centre, 22);
            let (start, end) = (towards(at(before), bend, 16), towards(at(after), bend, 16));
            let mut arrows = String::new();
            if clockwise.is_some() {
                arrows.push_str(" marker-end=\"url(#arrow)\"");
            }
            if counter.is_some() {
                arrows.push_str(" marker-start=\"url(#arrow)\"");
            }
            svg.line(format_args!(
                "<path class=\"{class}\"{arrows} d=\"M{} {}Q{} {} {} {}\"/>",
                start.0, start.1, bend.0, bend.1, end.0, end.1
            ));
        }
        let (x, y) = at(via);
        svg.line(format_args!(
            "<circle class=\"node\" cx=\"{x}\" cy=\"{y}\" r=\"70\"/>"
        ));
        svg.text(x, y + 32, SMALL, Anchor::Middle, &via.to_string(), None);
        let place = page.places[via];
        let mut lines: Vec<String> = Vec::new();
        lines.extend(clockwise.map(|pref| format!("cw {pref}")));
        lines.extend(counter.map(|pref| format!("ccw {pref}")));
        let name = plan.ring.get(via).map_or("?", HostName::as_str);
        let (x, anchor) = if place.columns > 1 {
            (x + 110, Anchor::Start)
        } else if place.column == 0 {
            (x - 110, Anchor::End)
        } else if place.column == page.columns - 1 {
            (x + 110, Anchor::Start)
        } else {
            (x, Anchor::Middle)
        };
        // Beside the node, or above it in the top row and below it in the bottom row.
        let first = match anchor {
            Anchor::Middle if place.row == 0 => y - 110 - lines.len() as i32 * SMALL.line,
            Anchor::Middle => y + 90 + SMALL.line,
            _ => y + 32 - lines.len() as i32 * SMALL.line / 2,
        };
        svg.cut(x, first, SMALL, anchor, name, 14 * SMALL.advance);
        for (line, i) in lines.iter().zip(1..) {
            svg.text(x, first + i * SMALL.line, SMALL, anchor, line, None);
        }
    }
}

fn table_height(plan: &Plan) -> i32 {
    (diagonals(plan).count() as i32 + 1) * SMALL.line + 60
}

/// The table of diagonals; gives the y of its end.
fn diagonals_table(svg: &mut Svg, plan: &Plan, page: &Page) -> i32 {
    let (left, right) = (MARGIN, page.width - MARGIN);
    // Shares of the width in characters; a wider page widens all alike.
    let columns = [
        ("pref", 7),
        ("handle", 11),
        ("dom", 4),
        ("from", 22),
        ("to", 22),
        ("crosses", 22),
        ("in at", 16),
        ("out at", 16),
        ("diagonal", 63),
    ];
    let total: i32 = columns.iter().map(|(_, share)| share).sum();
    let mut y = page.table_top();
    let row = |svg: &mut Svg, y: &mut i32, font: Font, cells: [&str; 9]| {
        *y += SMALL.line;
        let mut share = 0;
        for ((_, width), cell) in columns.iter().zip(cells) {
            let x = left + (right - left) * share / total;
            svg.cut(
                x,
                *y,
                font,
                Anchor::Start,
                cell,
                (right - left) * width / total - SMALL.advance,
            );
            share += width;
        }
        svg.path("rule", format_args!("M{left} {}H{right}", *y + 26));
    };
    row(svg, &mut y, SMALL.bold(), columns.map(|(name, _)| name));
    for (path, rule) in diagonals(plan) {
        let (pref, handle, domain) = (
            rule.pref.to_string(),
            rule.handle.to_string(),
            path.domain.to_string(),
        );
        row(
            svg,
            &mut y,
            SMALL,
            [
                &pref,
                &handle,
                &domain,
                path.from.as_str(),
                path.to.as_str(),
                path.via.as_ref().map_or("", HostName::as_str),
                rule.dev.as_str(),
                rule.redirect.as_str(),
                &path.name,
            ],
        );
    }
    y
}

const LEGEND_HEIGHT: i32 = 2 * SMALL.line + 90;

fn legend(svg: &mut Svg, plan: &Plan, page: &Page, table_bottom: i32) {
    let mut y = table_bottom + 90 + SMALL.line;
    let mut x = MARGIN;
    for (class, text) in [
        ("d0", "cable, domain 0"),
        ("d1", "cable, domain 1"),
        ("c0", "diagonals, domain 0"),
        ("c1", "diagonals, domain 1"),
    ] {
        svg.path(class, format_args!("M{x} {}h400", y - 30));
        svg.text(x + 450, y, SMALL, Anchor::Start, text, None);
        x += 450 + (text.len() as i32 + 3) * SMALL.advance;
    }
    svg.cut(
        x,
        y,
        SMALL,
        Anchor::Start,
        "cw, ccw: clockwise, counter-clockwise around the ring, as drawn; in a circle: ring rank",
        page.width - MARGIN - x,
    );
    y += SMALL.line;
    let marker = plan.markers.first().map_or_else(String::new, |m| {
        format!(
            "; marker: RDMA packets with UDP source port {} leave with EtherType {}",
            m.udp_source_port, m.ethertype
        )
    });
    let text = format!(
        "rules and numbers at a curve: tc preference on the node crossed{marker}; a text cut with an ellipsis is whole in its tooltip"
    );
    svg.cut(
        MARGIN,
        y,
        SMALL,
        Anchor::Start,
        &text,
        page.width - 2 * MARGIN,
    );
}

impl Font {
    /// The same size in bold: as wide, the fonts being monospace.
    fn bold(self) -> Font {
        Font {
            class: match self.class {
                "b" => "b w",
                "s" => "s w",
                class => class,
            },
            ..self
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// The document as it grows.
#[derive(Default)]
struct Svg {
    text: String,
}

impl Svg {
    fn line(&mut self, line: impl Display) {
        // Writing to a String does not fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn rect(&mut self, class: &str, left: i32, top: i32, right: i32, bottom: i32) {
        let (width, height) = (right - left, bottom - top);
        self.line(format_args!(
            "<rect class=\"{class}\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"/>"
        ));
    }

    fn path(&mut self, class: &str, d: impl Display) {
        self.line(format_args!("<path class=\"{class}\" d=\"{d}\"/>"));
    }

    /// `text` as it is; `whole` is what it stands for, when it is a cut.
    fn text(
        &mut self,
        x: i32,
        y: i32,
        font: Font,
        anchor: Anchor,
        text: &str,
        whole: Option<&str>,
    ) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " m",
            Anchor::End => " e",
        };
        let title = match whole {
            Some(whole) if whole != text => format!("<title>{}</title>", escaped(whole)),
            _ => String::new(),
        };
        self.line(format_args!(
            "<text class=\"{}{anchor}\" x=\"{x}\" y=\"{y}\">{title}{}</text>",
            font.class,
            escaped(text)
        ));
    }

    /// `text`, cut to `room`.
    fn cut(&mut self, x: i32, y: i32, font: Font, anchor: Anchor, text: &str, room: i32) {
        let most = usize::try_from(room / font.advance).unwrap_or(0);
        self.text(x, y, font, anchor, &shortened(text, most), Some(text));
    }
}

/// `text` in at most `most` characters (never less than 3), an ellipsis in the middle: names of
/// hosts differ at their start or at their end.
fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    let most = most.max(3);
    if length <= most {
        return Cow::Borrowed(text);
    }
    let end = (most - 1) / 2;
    let start = most - 1 - end;
    Cow::Owned(
        text.chars()
            .take(start)
            .chain(['…'])
            .chain(text.chars().skip(length - end))
            .collect(),
    )
}

/// `text` as XML character data or attribute value. Characters that XML 1.0 cannot hold at all
/// become U+FFFD.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::names::{Cidr, Mac};
    use crate::plan::ring::{Node, Ring, RingPort};
    use crate::plan::{Choices, OppositePaths, RouteStrategy, assemble};

    /// A ring of `size` hosts; `long` gives every name its greatest length.
    fn plan(
        size: usize,
        opposite_paths: OppositePaths,
        strategy: RouteStrategy,
        long: bool,
    ) -> Plan {
        let pad = |name: String, length: usize| {
            if long {
                format!("{name:x<length$}")
            } else {
                name
            }
        };
        let port = |rank: usize, way: usize, domain: usize| {
            // The cable clockwise of node i is number i; its ends are .10 (clockwise) and .11.
            let cable = if way == 0 {
                rank
            } else {
                (rank + size - 1) % size
            };
            let prefix = if strategy == RouteStrategy::ScopeLink {
                32
            } else {
                24
            };
            RingPort {
                netdev: pad(
                    format!("en{}p1s0f{way}", if domain == 0 { "" } else { "P2" }),
                    15,
                )
                .parse()
                .unwrap(),
                rdma: pad(format!("roce{domain}f{way}"), 63).parse().unwrap(),
                pci: Some(format!("000{}:01:00.{way}", 2 * domain).parse().unwrap()),
                ipv4: Cidr {
                    address: [198, 100 + domain as u8, 200 + cable as u8, 210 + way as u8].into(),
                    prefix,
                },
                mac: Mac([2, 0, 0, rank as u8, domain as u8, way as u8]),
                hca_index: 2 * domain + way,
            }
        };
        let nodes = (0..size).map(|rank| Node {
            host: pad(format!("spark{}", rank + 1), 128).parse().unwrap(),
            ports: [
                [port(rank, 0, 0), port(rank, 0, 1)],
                [port(rank, 1, 0), port(rank, 1, 1)],
            ],
            management_netdev: None,
        });
        let ring = Ring {
            nodes: nodes.collect(),
        };
        let hosts: Vec<HostName> = ring.nodes.iter().map(|n| n.host.clone()).rev().collect();
        let choices = Choices {
            opposite_paths: OppositePaths::Two,
            gid_index: 3,
            hairpin_queue_size: 1024,
            hairpin_queue_wanted: Some(8192),
            strategy,
            identities: Default::default(),
        };
        let mut plan = assemble(&ring, &hosts, &choices).unwrap();
        if opposite_paths == OppositePaths::Four {
            // Four paths are planned on the engine's own layout alone; here only their number
            // matters, so every row of a diagonal is there twice.
            let diagonals: Vec<PathRow> = plan
                .paths
                .iter()
                .filter(|p| p.kind == PathKind::Diagonal)
                .cloned()
                .collect();
            plan.paths.extend(diagonals);
            plan.rules.extend(plan.rules.clone());
            plan.routes.extend(plan.routes.clone());
            plan.markers.extend(plan.markers.clone());
            plan.opposite_paths = opposite_paths;
        }
        plan
    }

    fn cases() -> Vec<(String, Plan)> {
        let mut cases = Vec::new();
        for size in 3..=8 {
            for long in [false, true] {
                for (paths, strategy) in [
                    (OppositePaths::Two, RouteStrategy::AdjacentGateway),
                    (OppositePaths::Four, RouteStrategy::AdjacentGateway),
                    (OppositePaths::Two, RouteStrategy::ScopeLink),
                ] {
                    let name = format!(
                        "{size}-{}-{strategy:?}-{}",
                        paths.number(),
                        if long { "long" } else { "short" }
                    );
                    cases.push((name, plan(size, paths, strategy, long)));
                }
            }
        }
        cases
    }

    /// The texts of the document, elements checked for balance on the way.
    fn texts(svg: &str) -> Vec<String> {
        let mut open: Vec<&str> = Vec::new();
        let mut texts = Vec::new();
        for (i, piece) in svg.split('<').enumerate() {
            if i == 0 {
                assert_eq!(piece, "");
                continue;
            }
            let (tag, text) = piece.split_once('>').expect("a tag ends");
            assert!(!text.contains('>'), "{piece}");
            let name = tag
                .split([' ', '/'])
                .find(|n| !n.is_empty())
                .expect("a tag has a name");
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "{piece}");
            } else if !tag.starts_with('?') && !tag.ends_with('/') {
                open.push(name);
            }
            for reference in text.split('&').skip(1) {
                assert!(
                    ["amp;", "lt;", "gt;", "quot;", "#39;"]
                        .iter()
                        .any(|r| reference.starts_with(r)),
                    "{text}"
                );
            }
            texts.push(text.trim().to_owned());
        }
        assert!(open.is_empty(), "{open:?}");
        texts
    }

    #[test]
    fn every_name_address_mac_and_preference_is_in_a_text() {
        for (name, plan) in cases() {
            let svg = topology_svg(&plan);
            let texts = texts(&svg);
            let has =
                |what: &str| assert!(texts.iter().any(|t| t == what), "{name}: no text {what}");
            let mentions = |what: &str| {
                assert!(
                    texts.iter().any(|t| t.contains(what)),
                    "{name}: {what} is nowhere"
                )
            };
            for port in &plan.ports {
                has(port.host.as_str());
                has(port.netdev.as_str());
                has(port.rdma.as_str());
                has(&port.ipv4.to_string());
                has(&port.mac.to_string());
                mentions(&port.pci.unwrap().to_string());
            }
            for route in &plan.routes {
                let gateway = route
                    .gateway
                    .map_or("scope link".into(), |g| format!("via {g}"));
                has(&format!(
                    "{} {gateway} dev {} src {}",
                    route.destination, route.dev, route.src
                ));
            }
            for neighbour in &plan.neighbours {
                has(&format!(
                    "{} lladdr {} dev {}",
                    neighbour.address, neighbour.mac, neighbour.dev
                ));
            }
            for (path, rule) in diagonals(&plan) {
                has(&path.name);
                has(&rule.pref.to_string());
                let way = short_direction(direction(&plan, path).unwrap());
                has(&format!("{way} {}", rule.pref));
            }
            for marker in &plan.markers {
                has(marker.device.as_str());
            }
            mentions("size cap 81920 bytes");
        }
    }

    #[test]
    fn both_ends_and_the_subnet_of_every_cable_are_named_in_both_domains() {
        let plan = plan(4, OppositePaths::Two, RouteStrategy::AdjacentGateway, false);
        let texts = texts(&topology_svg(&plan));
        let subnets: BTreeSet<String> = plan
            .ports
            .iter()
            .map(|p| p.ipv4.network().to_string())
            .collect();
        assert_eq!(subnets.len(), 8);
        for subnet in subnets {
            assert_eq!(
                texts.iter().filter(|t| **t == subnet).count(),
                1,
                "{subnet}"
            );
        }
        // In the host's box, and at the host's end of the cable.
        for netdev in ["enp1s0f0", "enp1s0f1", "enP2p1s0f0", "enP2p1s0f1"] {
            let rules = plan
                .rules
                .iter()
                .flat_map(|r| [&r.dev, &r.redirect])
                .filter(|d| d.as_str() == netdev)
                .count();
            assert_eq!(
                texts.iter().filter(|t| *t == netdev).count(),
                4 + 4 + rules,
                "{netdev}"
            );
        }
    }

    #[test]
    fn no_text_leaves_the_page_or_meets_another_and_no_box_does() {
        for (name, plan) in cases() {
            let hosts: Vec<HostPlan> = plan
                .ring
                .iter()
                .filter_map(|h| plan.for_host(h.as_str()))
                .collect();
            let page = Page::of(&plan, &hosts);
            let rects: Vec<_> = page.places.iter().map(|p| page.rect(*p)).collect();
            assert_eq!(rects.len(), plan.ring.len());
            for (i, a) in rects.iter().enumerate() {
                assert!(
                    a.0 >= MARGIN && a.2 <= page.width - MARGIN && a.3 < page.table_top(),
                    "{name}"
                );
                for b in &rects[i + 1..] {
                    assert!(
                        a.2 + GAP <= b.0
                            || b.2 + GAP <= a.0
                            || a.3 + ROW_GAP <= b.1
                            || b.3 + ROW_GAP <= a.1
                    );
                }
                // A cable is a straight line: neighbours share a row or a column.
                let (here, next) = (page.places[i], page.places[(i + 1) % rects.len()]);
                let column = |p: Place| p.column..p.column + p.columns;
                assert!(
                    here.row == next.row || column(here).any(|c| column(next).contains(&c)),
                    "{name}: cable from {i}"
                );
            }
            let svg = topology_svg(&plan);
            let mut shown_at: Vec<(i32, i32, i32, &str)> = Vec::new();
            for line in svg.lines().filter(|l| l.starts_with("<text")) {
                let attribute = |name: &str| {
                    let (_, rest) = line.split_once(&format!(" {name}=\"")).unwrap();
                    rest.split('"').next().unwrap()
                };
                let classes: Vec<&str> = attribute("class").split(' ').collect();
                let font = [BODY, SMALL, HEAD, TITLE]
                    .into_iter()
                    .find(|f| f.class == classes[0])
                    .unwrap();
                let shown = line.trim_end_matches("</text>").rsplit('>').next().unwrap();
                let width = shown.chars().count() as i32 * font.advance;
                let x: i32 = attribute("x").parse().unwrap();
                let left = if classes.contains(&"e") {
                    x - width
                } else if classes.contains(&"m") {
                    x - width / 2
                } else {
                    x
                };
                assert!(
                    left >= MARGIN / 2 && left + width <= page.width - MARGIN / 2,
                    "{name}: {line}"
                );
                let y: i32 = attribute("y").parse().unwrap();
                assert!(
                    (MARGIN / 2..page.height - MARGIN / 2).contains(&y),
                    "{name}: {line}"
                );
                for (its_left, its_right, its_y, its_line) in &shown_at {
                    // 80 units are less than the distance of any two lines of text.
                    let apart =
                        left >= *its_right || *its_left >= left + width || (y - its_y).abs() >= 80;
                    assert!(apart, "{name}: {line} and {its_line}");
                }
                shown_at.push((left, left + width, y, line));
            }
        }
    }

    #[test]
    fn the_picture_is_the_same_every_time_and_a_renderer_takes_it() {
        for (name, plan) in cases() {
            let svg = topology_svg(&plan);
            assert_eq!(svg, topology_svg(&plan));
            if !name.starts_with(['4', '8']) {
                continue;
            }
            let child = Command::new("rsvg-convert")
                .args(["--width=300", "--format=png"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            let mut child = match child {
                Ok(child) => child,
                // Not in every place where tests run; the tags are checked above in any case.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    return crate::testing::not_tested("rendering topology.svg", "no rsvg-convert");
                }
                Err(e) => panic!("rsvg-convert: {e}"),
            };
            child
                .stdin
                .take()
                .unwrap()
                .write_all(svg.as_bytes())
                .unwrap();
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{name}: {said}");
            assert!(output.stdout.starts_with(b"\x89PNG"), "{name}");
        }
    }

    #[test]
    fn characters_that_would_be_markup_are_escaped() {
        assert_eq!(
            escaped("a<b>&\"'\u{1b}\u{0}\n\u{fffe}ä"),
            "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}\u{fffd} \u{fffd}ä"
        );
        // Names cannot hold such characters; a path's name is text, so it stands for all of them.
        let mut plan = plan(4, OppositePaths::Two, RouteStrategy::AdjacentGateway, false);
        for path in &mut plan.paths {
            path.name = "</text><script>alert(\"&\")</script>".into();
        }
        let svg = topology_svg(&plan);
        assert!(!svg.contains("<script"));
        assert!(texts(&svg).iter().any(|t| t.contains("&lt;script&gt;")));
    }

    #[test]
    fn a_long_text_keeps_both_its_ends() {
        assert_eq!(shortened("abcdefghij", 10), "abcdefghij");
        assert_eq!(shortened("abcdefghijk", 6), "abc…jk");
        assert_eq!(shortened("äöüäöü", 3), "ä…ü");
        assert_eq!(shortened("abcdef", 0), "a…f");
    }
}
