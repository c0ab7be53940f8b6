//! What a row of a reproduction is worth: its [`FigureKind`], and the coarser [`Role`] that follows from it.
//!
//! A check is a row with a verdict, and its kind says how hard it was to meet:
//!
//! ```text
//!   blind      a rule or a model that has seen none of the post's figures
//!   left-out   a model fitted to other rows of the same table; this row was left out of the fit
//!   formula    our model is the published formula or rule: a slip of ours would show, nothing else
//!   order      which of two is larger, or that neither is; the size of the ratio is in the error
//! ```
//!
//! Never: a figure that a model or a workload was fitted to as a check. That would be a proof by what was to be proved.

use serde::{Deserialize, Serialize};

/// What a row is worth, coarsely. The key is older than [`FigureKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// We put the figure in: it says that the input is the published one.
    Input,
    /// A model or workload was fitted to the figure: it says how well a model of this form can do.
    Fit,
    /// It has a verdict: the model had not been fitted to it.
    Check,
    /// No target was set, or it is not explained; the reason says which.
    Shown,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// A check. Neither the model nor the workload was fitted to, or chosen by, any figure of the post.
    Blind,
    /// A check. The model was fitted to other rows of the same table, or its form was chosen with the table in view.
    LeftOut,
    /// A check. The model is the published formula, or figures of the post follow from each other.
    Formula,
    /// A check. Which of two is larger, or that the post calls no difference.
    Order,
    /// A model or a workload was fitted to it.
    Fit,
    /// We put it in.
    Input,
    /// No target was set, or it is not explained.
    #[default]
    Shown,
}

impl FigureKind {
    /// All of them, the hardest checks first.
    pub const ALL: [FigureKind; 7] = [
        FigureKind::Blind,
        FigureKind::LeftOut,
        FigureKind::Formula,
        FigureKind::Order,
        FigureKind::Fit,
        FigureKind::Input,
        FigureKind::Shown,
    ];

    /// As it is written in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FigureKind::Blind => "blind",
            FigureKind::LeftOut => "left-out",
            FigureKind::Formula => "formula",
            FigureKind::Order => "order",
            FigureKind::Fit => "fit",
            FigureKind::Input => "input",
            FigureKind::Shown => "shown",
        }
    }

    /// In words, for the score.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            FigureKind::Blind => "predicted blind",
            FigureKind::LeftOut => "fitted, checked on left-out rows",
            FigureKind::Formula => "formula",
            FigureKind::Order => "order",
            FigureKind::Fit => "fit",
            FigureKind::Input => "input",
            FigureKind::Shown => "shown only",
        }
    }

    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            FigureKind::Blind => "no figure of the post was used to make the model or the workload",
            FigureKind::LeftOut => "fitted to other rows of the table, or made with it in view",
            FigureKind::Formula => "the model is the published formula or rule",
            FigureKind::Order => "which is larger, or that neither is; the error is of the ratio",
            FigureKind::Fit => "fitted to this figure; 'off' is outside its bound",
            FigureKind::Input => "put in as published",
            FigureKind::Shown => "no verdict; the reason is below its table",
        }
    }

    /// The role that the kind belongs to.
    #[must_use]
    pub fn role(self) -> Role {
        match self {
            FigureKind::Blind | FigureKind::LeftOut | FigureKind::Formula | FigureKind::Order => {
                Role::Check
            }
            FigureKind::Fit => Role::Fit,
            FigureKind::Input => Role::Input,
            FigureKind::Shown => Role::Shown,
        }
    }

    /// Whether a row of this kind has a verdict that can be a miss.
    #[must_use]
    pub fn is_check(self) -> bool {
        self.role() == Role::Check
    }
}
