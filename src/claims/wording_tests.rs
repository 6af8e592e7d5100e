//! Turns of phrase that claim something, and honest ones that do not.

use super::*;

fn says(text: &str) -> Vec<Says> {
    claims(text).into_iter().map(|statement| statement.says).collect()
}

#[test]
fn negations_are_not_claims() {
    for text in [
        "a significant gain",
        "Significantly more",
        "of some significance",
        "It reaches significance.",
        "a signi\u{fb01}cant gain",
        "Not only faster, it is significantly better",
        "Without tuning of any kind the gain is significant",
        "The gain is significant, and no loss was not found",
        "A significant gain was found",
        "A significant gain not seen before",
        "a significant partial credit",
        "significantly more timely",
        "a significant cost reduction",
        "The difference is statistically reliable.",
        "It is unlikely to be due to chance.",
        "The gain is more than luck.",
        "It is better beyond any doubt.",
        "The treatment clearly beats the base.",
        "A reliable improvement on both seeds.",
        "The gain holds (p < .05).",
        "Significance was reached.",
        "The p value is below .05.",
        "The gain holds (p = 0.03).",
        "Chance cannot explain it.",
        "The gain is not insignificant.",
        "The null hypothesis is rejected.",
        "The difference is real.",
        "No tuning was done and the gain is significant.",
        "There is no doubt the gain is significant.",
    ] {
        assert_eq!(says(text), [Says::Significant], "{text}");
    }
    for text in [
        "not significant",
        "insignificant",
        "a non-significant gain",
        "no significant gain",
        "two significant digits",
        "none",
        "The difference is not statistically significant",
        "None of the gains is significant.",
        "Whether the gain is significant is open.",
        "Is it significant?",
        "Significance was tested by sign flips.",
        "at a significance level of five percent",
        "We cannot call it significant.",
        "Nothing here is significant.",
        "It is far from significant, and fails to reach significance.",
        "Reviewers asked about the significance of the gain.",
        "They asked about significance of the change.",
        "A significant part of the work was the verifier.",
        "It takes a significant amount of memory.",
        "A significant difference was not found.",
        "Significant gains weren't observed on either seed.",
        "A significant gain has not been found.",
        "A significant gain could not be found.",
        "The most significant bit is set.",
        "We do not claim that the gain is significant.",
        "There is no evidence that the gain is significant.",
        "It may be no more than chance.",
        "Whether it is more than noise is open.",
        "No family shows a significant change.",
        "It ceases to be significant when clustered.",
        "Absence of a significant difference is no proof.",
        "Had the effect been significant, we would have gone on.",
        "It is unlikely to be significant in a replication.",
        "We lack the power to call it significant.",
        "The test is significant if p is small.",
        "The null hypothesis is not rejected.",
        "It falls short of significance.",
        "No family changed significantly.",
        "A significant change would need more tasks.",
        "Absence of significance is not evidence.",
        "We call a result significant when p is below 0.05.",
        "p < .05 was the threshold set beforehand.",
        "It is more likely than not due to noise.",
        "Neither the change in reward (p = ) nor that in answers is significant.",
        "A significant effect was hypothesised; none was found.",
    ] {
        assert!(says(text).is_empty(), "{text}");
    }
}

#[test]
fn sameness_is_found_where_it_is_stated() {
    for (text, wanted) in [
        ("There is no difference between the arms.", Says::Same),
        ("Training had no effect.", Says::Same),
        ("The two are equivalent", Says::Same),
        ("It shows no regression on held-out tasks.", Says::NoWorse),
        ("The model did not regress.", Says::NoWorse),
        ("The treatment is non-inferior.", Says::NoWorse),
        ("There is no\n*difference*  between&nbsp;the arms.", Says::Same),
        ("It does\u{200b}n't re&shy;gress.", Says::NoWorse),
        ("A highly-sig**nificant** gain.", Says::Significant),
        ("A sign&#105;ficant gain.", Says::Significant),
        ("The model didn\u{2019}t regress.", Says::NoWorse),
        ("The treatment is noninferior.", Says::NoWorse),
        ("It is non\u{2011}inferior.", Says::NoWorse),
        ("It is no [worse](https://x.example/a).", Says::NoWorse),
        ("In May the treatment shows no regression.", Says::NoWorse),
        ("This means the arms are equivalent.", Says::Same),
        ("There is no difference.", Says::Same),
        ("Both arms are equal.", Says::Same),
        ("The two are on par.", Says::Same),
        ("The arms perform identically.", Says::Same),
        ("The treatment does just as well.", Says::Same),
        ("The arms did not differ.", Says::Same),
        ("It is comparable to the baseline.", Says::Same),
        ("Reward is unchanged.", Says::Same),
        ("It has the same reward as the base.", Says::Same),
        ("The adapter matches the base.", Says::Same),
        ("It has a negligible effect.", Says::Same),
        ("It performs as well as the base.", Says::NoWorse),
        ("Training preserves reward.", Says::NoWorse),
        ("The score did not fall.", Says::NoWorse),
        ("No family got worse.", Says::NoWorse),
        ("On no family of code was there a loss: no regression.", Says::NoWorse),
        ("There is no regression on any family.", Says::NoWorse),
        ("There was no loss of reward.", Says::NoWorse),
        ("The treatment is not inferior.", Says::NoWorse),
        ("The score stayed the same.", Says::Same),
        ("The interval excludes zero.", Says::LeavesZeroOut),
        ("Its interval does not include 0.", Says::LeavesZeroOut),
        ("The interval lies wholly above zero.", Says::LeavesZeroOut),
        ("The interval includes zero.", Says::HoldsZero),
        ("The adapter does no harm.", Says::NoWorse),
        ("It doesn't hurt the score.", Says::NoWorse),
        ("No regression in the code families' scores.", Says::NoWorse),
        ("The adapter is at least as accurate.", Says::NoWorse),
    ] {
        assert_eq!(says(text), [wanted], "{text}");
    }
    for text in [
        "Whether there is no difference between the arms is open.",
        "Is there no difference between the arms?",
        "Positive when the treatment is not worse by the margin.",
        "The arms are not indistinguishable.",
        "The same tasks ran under both arms.",
        "It is worse.",
        "The p value of non-inferiority is printed here.",
        "We cannot say that there is no difference between the arms.",
        "This flag is equivalent to leaving it out.",
        "It may be that training had no effect.",
        "We do not claim that the arms are equivalent.",
        "LoRA is equivalent to a low-rank update of the weights.",
        "There is no difference between the two copies.",
        "The order of fields has no effect on the hashes.",
        "There is no regression in the code.",
        "No significant difference between the arms.",
        "Both arms are the same size.",
        "The tasks are the same under both arms.",
        "A regression has not been found.",
        "No measurable difference was seen in reward.",
        "No difference was detected between the arms.",
        "We see no clear difference between the arms.",
        "The null hypothesis of no difference is not rejected.",
        "We tested the null hypothesis of no effect and reject it.",
        "The data are compatible with no effect.",
        "There is insufficient evidence to say that there is no effect.",
        "No regression can be excluded beyond the interval.",
        "The model has no effect handlers.",
        "The seed makes no difference to the order of tasks.",
        "The arms did not differ significantly.",
        "There was no change in score on the held-out family.",
        "No difference was found, which is not the same as no difference.",
        "It is not the case that both arms are equally good.",
        "The flag has no effect on sampling.",
        "Setting the flag has no effect.",
        "One step is equivalent to eight rows.",
        "The two commands are equivalent.",
        "No regression test was run.",
        "The absence of a finding is not evidence that there is no difference.",
        "Finding nothing is not the same as showing that there is no difference.",
        "We lack the power to show that the adapter has no effect.",
        "The power is too low to conclude that there is no difference.",
        "This must not be read as showing no effect.",
        "The null hypothesis is that the two arms are equivalent.",
        "The sign-flip test assumes no difference between the arms.",
        "No effect of the adapter on brinework was found.",
        "Renaming the folder makes no difference to the audit.",
    ] {
        assert!(says(text).is_empty(), "{text}");
    }
    let both = claims("A significant gain. On the rest it had no effect.");
    let of = |says, at, sentence: std::ops::Range<usize>| Statement {
        says,
        at,
        clause: sentence.clone(),
        sentence,
    };
    assert_eq!(both, [of(Says::Significant, 2, 0..18), of(Says::Same, 39, 19..48)]);
}

#[test]
fn a_sentence_ends_with_its_mark_or_its_line() {
    let sentences = |text: &str| -> Vec<String> {
        claims(text).into_iter().map(|said| text[said.sentence].trim().to_string()).collect()
    };
    assert_eq!(
        sentences("At p = 0.03 it is significant; more at 3.5 (e.g.) is not."),
        ["At p = 0.03 it is significant"]
    );
    assert_eq!(sentences("- one\n- a *significant* gain\n- three"), ["- a *significant* gain"]);
    assert_eq!(
        sentences("| a | significant |\n| b | no worse |"),
        ["| a | significant |", "| b | no worse |"]
    );
    assert_eq!(
        sentences("Significant, and\nsignificantly so, [x](derive:a.b)."),
        ["Significant, and\nsignificantly so, [x](derive:a.b)"]
    );
}

#[test]
fn paragraphs_end_at_blank_lines() {
    let found: Vec<&str> =
        paragraphs("a\nb\n\nc\n   \nd").into_iter().map(|r| &"a\nb\n\nc\n   \nd"[r]).collect();
    assert_eq!(found, ["a\nb", "c\n   \nd"]);
}

#[test]
fn a_clause_that_is_set_against_another_stands_alone() {
    let clauses = |text: &str| -> Vec<String> {
        claims(text).into_iter().map(|said| text[said.clause].trim_matches([' ', ',']).to_string()).collect()
    };
    assert_eq!(
        clauses("It is significant over tasks, but not over families."),
        ["It is significant over tasks"]
    );
    assert_eq!(
        clauses("While significant over tasks, it is not so over families."),
        ["While significant over tasks"]
    );
    assert_eq!(
        clauses("With this p the gain is significant, yet there it is not."),
        ["With this p the gain is significant"]
    );
    assert_eq!(
        clauses("While tokens fell significantly (by this, p as shown), reward moved little."),
        ["While tokens fell significantly (by this, p as shown)"]
    );
    assert_eq!(
        clauses("Tokens fell significantly and reward did not change."),
        ["Tokens fell significantly"]
    );
    assert_eq!(clauses("All of it is significant, and so on."), ["All of it is significant, and so on"]);
    assert_eq!(
        clauses("The pooled gain is significant, but no single family change is significant."),
        ["The pooled gain is significant"]
    );
}

#[test]
fn a_text_without_an_end_of_sentence_is_read_in_time() {
    // Each turn of phrase looks a bounded way around itself.
    let text = "no difference and significant ".repeat(10_000);
    assert!(!claims(&text).is_empty());
}
