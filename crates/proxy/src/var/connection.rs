//! Variables of the connection.

use super::Variable;

/// The variables.
pub const VARIABLES: &[Variable] = &[];
