//! From the comparison to the changes, in their order.

use crate::facts::{Fact, Filter};
use crate::mesh::change::Change;
use crate::mesh::compare::{Object, Row, Stale, State, same_rule};
use crate::mesh::present::Present;
use crate::names::NetdevName;

/// What `up` does, and why it does not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Up {
    /// What makes the host as planned, in the order of doing.
    pub changes: Vec<Change>,
    /// What keeps it from being made so: an object and what is in its place or not known.
    pub obstacles: Vec<Row>,
    /// Markers on their way from one state to another: waiting tells where to.
    pub changing: Vec<Row>,
}

/// What brings the host up: transit rules first, then markers, then neighbours and routes. (A route
/// without a marker lets unmarked packets out, which the neighbour's kernel forwards; a marker without
/// the rules tags packets that nobody takes.)
///
/// `rows` are those of the plan, in the order of [`super::compare::compare`]. `earlier` are those of the
/// plan that was applied before and that this plan does not have: what of them is there, and exactly as
/// that plan had it, goes first, in reverse.
pub fn up(rows: &[Row], earlier: &[Row]) -> Up {
    let mut up = Up::default();
    for row in earlier.iter().rev() {
        if let Some(change) = removal(&row.object, &row.state) {
            up.changes.push(change);
        }
    }
    for row in rows {
        match (&row.object, &row.state) {
            (_, State::Right) => {}
            (_, State::Changing(_)) => up.changing.push(row.clone()),
            (_, State::InTheWay { .. } | State::NoPort | State::NotObserved(_)) => {
                up.obstacles.push(row.clone());
            }
            (object, State::Absent) => up.changes.push(addition(object)),
            (Object::Rule(dev, new), State::Stale(Stale::Rule(old))) => {
                up.changes.push(Change::ReplaceRule {
                    dev: dev.clone(),
                    old: old.clone(),
                    new: new.clone(),
                });
            }
            (Object::Route(new), State::Stale(Stale::Route(old))) => {
                up.changes.push(Change::ReplaceRoute {
                    old: old.clone(),
                    new: new.clone(),
                });
            }
            (Object::Marker(device), State::Stale(_)) => {
                up.changes.push(Change::RestartMarker {
                    device: device.clone(),
                });
            }
            // The comparison makes no other pair.
            (_, State::Stale(_)) => up.obstacles.push(row.clone()),
        }
    }
    up
}

fn addition(object: &Object) -> Change {
    match object.clone() {
        Object::Clsact(dev) => Change::AddClsact { dev },
        Object::Rule(dev, rule) => Change::AddRule { dev, rule },
        Object::Marker(device) => Change::StartMarker { device },
        Object::Neighbour(dev, neighbour) => Change::AddNeighbour { dev, neighbour },
        Object::Route(route) => Change::AddRoute { route },
    }
}

/// What removes an object that is exactly ours; `None` when there is nothing of ours. The `clsact`
/// discipline is not among them: see [`down`].
pub(super) fn removal(object: &Object, state: &State) -> Option<Change> {
    match (object.clone(), state) {
        (Object::Clsact(_), _) => None,
        (Object::Rule(dev, rule), State::Right) => Some(Change::RemoveRule { dev, rule }),
        (Object::Rule(dev, wanted), State::Stale(Stale::Rule(found)))
            if became_of(found, &wanted) =>
        {
            Some(Change::RemoveRule {
                dev,
                rule: found.clone(),
            })
        }
        (Object::Marker(device), State::Right | State::Stale(_) | State::Changing(_)) => {
            Some(Change::StopMarker { device })
        }
        (Object::Neighbour(dev, neighbour), State::Right) => {
            Some(Change::RemoveNeighbour { dev, neighbour })
        }
        (Object::Route(route), State::Right) => Some(Change::RemoveRoute { route }),
        // Beside something of others, ours is ours all the same.
        (_, State::InTheWay { ours, .. }) => removal(object, ours),
        _ => None,
    }
}

/// Whether a rule is what becomes of ours by itself: out of hardware, or with a target that was
/// re-initialised, so that the redirect names no device.
fn became_of(found: &Filter, wanted: &Filter) -> bool {
    let mut gone = wanted.clone();
    if let Some(flower) = &mut gone.flower {
        for action in &mut flower.actions {
            if let Some(mirred) = &mut action.mirred {
                mirred.dev = None;
            }
        }
    }
    same_rule(found, wanted) || same_rule(found, &gone)
}

/// What `down` does, and what it leaves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Down {
    /// What removes everything of ours, in the order of doing.
    pub changes: Vec<Change>,
    /// What is in the place of ours and not exactly ours, or could not be read.
    pub left: Vec<Row>,
    /// Ports whose `clsact` discipline is ours and stays, because somebody else's filters are on it.
    pub kept: Vec<NetdevName>,
}

/// What takes the host down: routes, neighbours, markers, rules, and the `clsact` disciplines that we
/// made and that hold nothing else.
pub fn down(rows: &[Row], present: &Present) -> Down {
    let mut down = Down::default();
    for row in rows.iter().rev() {
        match (&row.object, &row.state) {
            (Object::Clsact(_), _) => {}
            (_, State::Absent | State::NoPort) => {}
            (object, state) => {
                let removal = removal(object, state);
                if removal.is_none() || matches!(state, State::InTheWay { .. }) {
                    down.left.push(row.clone());
                }
                down.changes.extend(removal);
            }
        }
    }
    for dev in &present.recorded_clsacts {
        let removed = |filter: &Filter| {
            let place = |f: &Filter| (f.side, f.chain, f.pref, f.protocol, f.handle);
            down.changes.iter().any(|change| {
                matches!(change, Change::RemoveRule { dev: on, rule }
                    if on == dev && place(rule) == place(filter))
            })
        };
        match present.port(dev) {
            Some(port) => match (&port.link, &port.qdiscs, &port.filters) {
                (Fact::Known(None), _, _) => {
                    down.changes.push(Change::ForgetClsact { dev: dev.clone() })
                }
                (Fact::Known(Some(_)), Fact::Known(qdiscs), Fact::Known(filters)) => {
                    if !qdiscs.iter().any(|qdisc| qdisc.kind.as_str() == "clsact") {
                        down.changes.push(Change::ForgetClsact { dev: dev.clone() });
                    } else if filters.iter().all(removed) {
                        down.changes.push(Change::RemoveClsact { dev: dev.clone() });
                    } else {
                        down.kept.push(dev.clone());
                    }
                }
                (Fact::NotObserved(why), _, _)
                | (_, Fact::NotObserved(why), _)
                | (_, _, Fact::NotObserved(why)) => down.left.push(Row {
                    object: Object::Clsact(dev.clone()),
                    state: State::NotObserved(why.clone()),
                }),
            },
            None => down.left.push(Row {
                object: Object::Clsact(dev.clone()),
                state: State::NotObserved("the port was not looked at".into()),
            }),
        }
    }
    down
}
