//! From tables to checked episodes of two arms: which column plays which role, defaults that
//! are said aloud, and errors that name file, row and field.

use super::columns::{self, Roles};
use super::table::{self, Field, Source, Table};
use super::{Cluster, Options, arms, repeats};
use crate::error::{Error, Result};
use crate::hash::sha256_hex;
use crate::stats::{Arm, Observation, Warning};
use std::collections::{BTreeMap, HashMap};

/// One episode of either arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// Which arm.
    pub arm: Arm,
    /// The task.
    pub task: String,
    /// Its family, where one is named.
    pub family: Option<String>,
    /// The event seed.
    pub seed: i128,
    /// The training seed of its arm.
    pub train_seed: Option<i128>,
    /// Index of the attempt.
    pub rollout: i128,
    /// The score in [0, 1]; `None` is missing.
    pub reward: Option<f64>,
    /// Whether it was solved; `None` is missing.
    pub solved: Option<bool>,
    /// Which table, and which row of it (from 0).
    pub origin: (usize, usize),
}

impl Episode {
    /// As `stats` takes it; without a reward it is not judged either.
    fn observation(&self, cluster: Cluster, places: &Places) -> Observation<'_> {
        let family = self.family.as_deref();
        Observation {
            arm: self.arm,
            task: &self.task,
            family,
            cluster: if cluster == Cluster::Family { family } else { None },
            seed: places.of(self.seed),
            train_seed: self.train_seed.map(|s| places.of(s)),
            rollout: places.of(self.rollout),
            reward: self.reward,
            solved: self.reward.and(self.solved),
        }
    }

    fn numbers(&self) -> impl Iterator<Item = i128> {
        [self.seed, self.rollout].into_iter().chain(self.train_seed)
    }
}

/// Seeds and rollouts as `stats` takes them, in 64 bits with a sign. It only asks which are the same and which
/// comes first: where one does not fit, each goes by its place among all of them, in rising order.
enum Places {
    AsTheyAre,
    Rising(Vec<i128>),
}

impl Places {
    fn new(episodes: &[Episode]) -> Places {
        let all = || episodes.iter().flat_map(Episode::numbers);
        if all().all(|n| i64::try_from(n).is_ok()) {
            return Places::AsTheyAre;
        }
        let mut rising: Vec<i128> = all().collect();
        rising.sort_unstable();
        rising.dedup();
        Places::Rising(rising)
    }

    fn of(&self, number: i128) -> i64 {
        match self {
            Places::AsTheyAre => number as i64,
            Places::Rising(rising) => rising.partition_point(|n| *n < number) as i64,
        }
    }
}

/// Checked episodes, with what must be said about them.
#[derive(Debug)]
pub struct Rows {
    /// Episodes of the two arms, in file order.
    pub episodes: Vec<Episode>,
    /// Name of the base arm.
    pub base: String,
    /// Name of the treatment arm.
    pub treatment: String,
    /// Defaults taken and rows left out.
    pub warnings: Vec<Warning>,
    /// Whether any file has a column that says what is solved, empty or not.
    pub judged: bool,
    tables: Vec<Table>,
}

impl Rows {
    /// File and row of an episode.
    pub fn place(&self, episode: &Episode) -> String {
        self.tables.get(episode.origin.0).map_or_else(String::new, |t| t.place(episode.origin.1))
    }

    /// The episodes as `stats` takes them.
    pub fn observations(&self, cluster: Cluster) -> Vec<Observation<'_>> {
        let places = Places::new(&self.episodes);
        self.episodes.iter().map(|e| e.observation(cluster, &places)).collect()
    }

    /// The files, for errors about all rows.
    pub fn paths(&self) -> String {
        self.tables.iter().map(|t| t.path.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// Text from a file as it may be printed: one line, no control characters, not too long.
pub fn shown(text: &str) -> String {
    let clean = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    match text.chars().nth(60) {
        None => text.chars().map(clean).collect(),
        Some(_) => text.chars().take(59).map(clean).chain(['…']).collect(),
    }
}

/// Reads and checks the rows of both arms.
pub fn load(options: &Options) -> Result<Rows> {
    let mapped = columns::mapping(options)?;
    let mut tables = Vec::new();
    let mut named = Vec::new();
    let mut digests = Vec::new();
    for path in &options.rows {
        let bytes = table::bytes(path)?;
        digests.push(sha256_hex(&bytes));
        let source = Source::open(path, bytes)?;
        let mut roles = columns::roles(&source, &mapped, options.rows.len())?;
        let mut wanted: Vec<&str> = roles.values().map(String::as_str).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let table = source.read(&wanted)?;
        if table.rows == 0 {
            return Err(Error::invalid("the file has no rows")
                .at(&table.path)
                .hint("it needs a row for each episode"));
        }
        // Numbers that a source never had are a column of nulls in imported rows, and no column elsewhere.
        for role in ["seed", "rollout"] {
            if !mapped.contains_key(role) && (0..table.rows).all(|i| field(&table, &roles, role, i).is_null())
            {
                roles.remove(role);
            }
        }
        named.push(roles);
        tables.push(table);
    }
    repeats::once(options, &digests, named.iter().any(|roles| roles.contains_key("arm")))?;
    let mut warnings = Vec::new();
    let (names, sides) = sides(options, &tables, &named, &mut warnings)?;
    let mut episodes = Vec::new();
    for (t, ((table, roles), sides)) in tables.iter().zip(&named).zip(&sides).enumerate() {
        for (i, side) in sides.iter().enumerate() {
            if let Some(arm) = side {
                episodes.push(episode(table, roles, (t, i), *arm)?);
            }
        }
    }
    // From here on a table only says where a row stands.
    tables.iter_mut().for_each(|t| t.columns = HashMap::new());
    repeats::number_rollouts(&mut episodes, &named);
    for (role, text) in [
        ("seed", "no `seed` column, or an empty one: one seed throughout"),
        ("rollout", "no `rollout` column, or an empty one: repeated rows are attempts, in file order"),
    ] {
        if named.iter().any(|roles| !roles.contains_key(role)) {
            warnings
                .push(Warning::new(if role == "seed" { "default_seed" } else { "default_rollout" }, text));
        }
    }
    let judged = named.iter().any(|roles| roles.contains_key("solved"));
    let rows = Rows { episodes, base: names.base, treatment: names.treatment, warnings, judged, tables };
    repeats::unnumbered_in_one_file(&rows, &named)?;
    repeats::unique(&rows)?;
    trained_throughout(&rows)?;
    scored(&rows, named.first().and_then(|roles| roles.get("reward")).map_or("reward", String::as_str))?;
    Ok(rows)
}

/// The arm of every row of every table; `None` for rows of other arms.
fn sides(
    options: &Options,
    tables: &[Table],
    named: &[Roles],
    warnings: &mut Vec<Warning>,
) -> Result<(arms::Names, Vec<Vec<Option<Arm>>>)> {
    let with = named.iter().filter(|roles| roles.contains_key("arm")).count();
    if with == 0 {
        let [base, treatment] = tables else {
            let paths = tables.iter().map(|t| t.path.as_str()).collect::<Vec<_>>().join(", ");
            return Err(Error::invalid("there is no column `arm`, so the arms cannot be told")
                .at(paths)
                .hint("give two files, the base arm's first, or name the column: --map arm=COLUMN"));
        };
        let sides = vec![vec![Some(Arm::Base); base.rows], vec![Some(Arm::Treatment); treatment.rows]];
        return Ok((arms::by_file(options)?, sides));
    }
    if let Some(i) = named.iter().position(|roles| !roles.contains_key("arm")) {
        return Err(Error::invalid("there is no column `arm`, which another file has")
            .at(&tables[i].path)
            .hint("give all files an `arm` column, or none of two"));
    }
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let mut of_rows = Vec::new();
    for (table, roles) in tables.iter().zip(named) {
        let mut of_table = Vec::with_capacity(table.rows);
        for i in 0..table.rows {
            let name = take(table, roles, "arm", i, Field::name)?;
            *found.entry(name.clone()).or_default() += 1;
            of_table.push(name);
        }
        of_rows.push(of_table);
    }
    let place = tables.first().map_or("", |t| t.path.as_str());
    let (names, of_arms) = arms::by_column(options, &found, place)?;
    warnings.extend(of_arms);
    let sides = of_rows.iter().map(|rows| rows.iter().map(|name| names.side(name)).collect()).collect();
    Ok((names, sides))
}

/// The field of a role in row `i`; missing where the file has no such column.
fn field<'t>(table: &'t Table, roles: &Roles, role: &str, i: usize) -> &'t Field {
    let column = roles.get(role).and_then(|name| table.columns.get(name));
    column.and_then(|fields| fields.get(i)).unwrap_or(&Field::Null)
}

/// A field through a coercion; the error names file, row and column.
fn take<T>(
    table: &Table,
    roles: &Roles,
    role: &str,
    i: usize,
    coerce: impl Fn(&Field) -> std::result::Result<T, String>,
) -> Result<T> {
    coerce(field(table, roles, role, i)).map_err(|why| {
        let column = roles.get(role).map_or(role, String::as_str);
        let remedy = match role {
            "reward" => "a missing reward is an empty field or null; scale other scores to [0, 1] first",
            "solved" => "a missing value is an empty field or null",
            "seed" | "rollout" | "train_seed" => {
                "number them, large ones as text or 64-bit integers and not as floats, or name another column with --map"
            }
            _ => "every row needs one",
        };
        Error::invalid(format!("`{}` {why}", shown(column))).at(table.place(i)).hint(remedy)
    })
}

/// A field that may be missing.
fn maybe<T>(
    table: &Table,
    roles: &Roles,
    role: &str,
    i: usize,
    coerce: impl Fn(&Field) -> std::result::Result<T, String>,
) -> Result<Option<T>> {
    if field(table, roles, role, i).is_null() {
        Ok(None)
    } else {
        take(table, roles, role, i, coerce).map(Some)
    }
}

fn episode(table: &Table, roles: &Roles, origin: (usize, usize), arm: Arm) -> Result<Episode> {
    let i = origin.1;
    let integer = |role: &str| {
        if roles.contains_key(role) { take(table, roles, role, i, Field::integer) } else { Ok(0) }
    };
    let task = take(table, roles, "task", i, Field::name)?;
    let family = match roles.contains_key("family") {
        true => maybe(table, roles, "family", i, Field::name)?,
        false => task.split_once('/').map(|(family, _)| family.to_owned()).filter(|f| !f.is_empty()),
    };
    Ok(Episode {
        arm,
        family,
        seed: integer("seed")?,
        train_seed: maybe(table, roles, "train_seed", i, Field::integer)?,
        rollout: integer("rollout")?,
        reward: maybe(table, roles, "reward", i, Field::unit)?,
        solved: maybe(table, roles, "solved", i, Field::flag)?,
        task,
        origin,
    })
}

/// An arm has at least one reward.
fn scored(rows: &Rows, column: &str) -> Result<()> {
    for (arm, side, name) in [(Arm::Base, "base", &rows.base), (Arm::Treatment, "treatment", &rows.treatment)]
    {
        let of_arm = || rows.episodes.iter().filter(|e| e.arm == arm);
        if of_arm().all(|e| e.reward.is_none()) {
            let count = of_arm().count();
            let all = if count == 1 { "its only row".to_owned() } else { format!("all of its {count} rows") };
            let called = if name == side { String::new() } else { format!(" (`{}`)", shown(name)) };
            let place = of_arm().next().map_or_else(|| rows.paths(), |e| rows.place(e));
            return Err(Error::invalid(format!(
                "the {side} arm{called} has no scored episode: `{}` is empty in {all}",
                shown(column)
            ))
            .at(place)
            .hint("fill in the rewards, or name the column that holds them: --map reward=COLUMN"));
        }
    }
    Ok(())
}

/// An arm has a training seed in all its rows, or in none.
fn trained_throughout(rows: &Rows) -> Result<()> {
    for (arm, name) in [(Arm::Base, &rows.base), (Arm::Treatment, &rows.treatment)] {
        let of_arm = || rows.episodes.iter().filter(|e| e.arm == arm);
        if let (true, Some(e)) =
            (of_arm().any(|e| e.train_seed.is_some()), of_arm().find(|e| e.train_seed.is_none()))
        {
            return Err(Error::invalid(format!(
                "the training seed is missing, though other rows of arm `{}` have one",
                shown(name)
            ))
            .at(rows.place(e))
            .hint("give every row of a trained arm its training seed"));
        }
    }
    Ok(())
}
