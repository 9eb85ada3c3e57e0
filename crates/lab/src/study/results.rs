//! `study.json`: results of a study, other than those of its parts.

use serde::{Deserialize, Serialize};

use super::claim::ClaimResults;
use super::sentence::Sentence;

pub use super::section_results::{
    ChartResults, ColumnResults, Origin, RowResults, SectionResults, Value,
};

/// Version of the schema.
pub const SCHEMA: u32 = 2;

/// Results of a study.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StudyResults {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Short name.
    pub name: String,
    /// The question.
    pub question: String,
    /// Authors and title of the paper; null: it repeats no paper.
    pub paper: Option<String>,
    /// The paper's answer.
    pub says: Option<String>,
    /// Our answer, with figures; null: the study has none but its tables.
    pub answer: Option<String>,
    /// Differences from the original set-up.
    pub differs: Vec<String>,
    /// `full`, `quick` or `smoke`.
    pub scale: String,
    /// The measured parts.
    pub parts: Vec<PartResults>,
    /// Names of the parts that were not yet, or failed.
    #[serde(default)]
    pub missing: Vec<String>,
    /// The report's sections.
    pub sections: Vec<SectionResults>,
    /// The claims of answer and reasons, and how they came out.
    pub claims: Vec<ClaimResults>,
    /// The sentences of answer and reasons.
    pub sentences: Vec<Sentence>,
    /// Sentences that a figure of the page contradicts, each with that figure.
    pub contradicted: Vec<String>,
}

/// A part, whose results lie in a folder of their own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named as what they hold")]
pub struct PartResults {
    pub name: String,
    pub question: String,
    /// Beside `study.json`.
    pub folder: String,
    pub link: String,
    /// `on` or `off`.
    pub offload: String,
    pub family: String,
    pub started: String,
    pub finished: String,
    pub cpu: String,
    pub cores: usize,
    pub kernel: String,
    /// Servers, clients and tunnels with their versions.
    #[serde(default)]
    pub programs: Vec<String>,
    pub samples: usize,
    pub failed: usize,
    pub warnings: Vec<String>,
    /// Why it is not complete; null: it is.
    pub incomplete: Option<String>,
    /// Stacks that have a layer in user space.
    pub user_space: Vec<String>,
}
