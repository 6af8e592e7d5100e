//! The difficulty of level 1, family by family, in one table: change a number here after
//! `gym calibrate` has measured solve rates, then raise the family's version and run
//! `gym selftest` again, since easier numbers can lift a constant answer over its floor.

/// Level 1 of `caravan`.
#[derive(Debug, Clone, Copy)]
pub struct CaravanKnobs {
    /// Lines of the list, 2 to 20. More lines are harder. Default 3.
    pub lines: usize,
    /// Largest quantity loaded, at least 5. The floor of 0.15 needs about 12. Default 15.
    pub max_quantity: i64,
    /// Largest quantity bought or sold, at least 1. Default 3.
    pub max_change: i64,
    /// Share of tasks whose asked good never changes, so that its number is only looked up,
    /// in percent; in the others the last line changes it. A model of 135 million weights reads
    /// numbers but does not add them, and a worked example of a sum also spoils its reading.
    /// Default 100.
    pub lookup_percent: i64,
}

/// Level 1 of `gatepost`.
#[derive(Debug, Clone, Copy)]
pub struct GatepostKnobs {
    /// Conditions that must hold together, 1 to 3 (item, cloak, road). Default 1.
    pub rules: usize,
    /// Travellers at the gate, 4 to 8; their number is what a guesser chooses from. Default 4.
    pub travellers: usize,
    /// How many wrong travellers carry an item that shares a word with the right one. Default 0.
    pub near_misses: usize,
    /// Whether travellers are known by a number behind their item (`brass key: 7`) and the reply
    /// names the item first, both of which are far easier than names. Only with one rule.
    /// Default true.
    pub numbered: bool,
}

/// Level 1 of `kilnrite`.
#[derive(Debug, Clone, Copy)]
pub struct KilnriteKnobs {
    /// Steps of the rite, at least 1. More are harder. Default 2.
    pub steps: usize,
    /// Turns allowed beyond the number of steps. More are easier, and lift the random policy:
    /// with 2 steps and 4 levers, one turn more needs a floor of 0.40. Default 0.
    pub slack: usize,
    /// Glows and levers listed, 3 to 8. Without slack the random policy scores one in so many.
    /// Default 3.
    pub verbs: usize,
    /// Share of steps at which the glow stays as it was, in percent. More is easier. Default 70.
    pub stay_percent: i64,
}

/// Level 1 of `brinework`.
#[derive(Debug, Clone, Copy)]
pub struct BrineworkKnobs {
    /// Largest amount of salt or water at the start, at least 5. The floor of 0.15 needs
    /// about 12. Default 15.
    pub max_amount: i64,
    /// Largest change of an amount, at least 1. Default 3.
    pub max_change: i64,
    /// Share of tasks that ask for the amount which stayed the same, in percent. More is
    /// easier. Default 100.
    pub lookup_percent: i64,
}

/// Level-1 parameters of every family.
#[derive(Debug, Clone, Copy)]
pub struct Knobs {
    /// Keeping a ledger.
    pub caravan: CaravanKnobs,
    /// Applying a rule set.
    pub gatepost: GatepostKnobs,
    /// Following a rite.
    pub kilnrite: KilnriteKnobs,
    /// Conserved amounts.
    pub brinework: BrineworkKnobs,
}

/// The parameters in force.
pub const LEVEL_ONE: Knobs = Knobs {
    caravan: CaravanKnobs { lines: 3, max_quantity: 15, max_change: 3, lookup_percent: 100 },
    gatepost: GatepostKnobs { rules: 1, travellers: 4, near_misses: 0, numbered: true },
    kilnrite: KilnriteKnobs { steps: 2, slack: 0, verbs: 3, stay_percent: 70 },
    brinework: BrineworkKnobs { max_amount: 15, max_change: 3, lookup_percent: 100 },
};
