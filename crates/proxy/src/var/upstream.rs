//! Variables of the upstream.

use super::Variable;
use super::VariableFamily;

/// The variables.
pub const VARIABLES: &[Variable] = &[];
/// The families.
pub const FAMILIES: &[VariableFamily] = &[];
