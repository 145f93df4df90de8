//! Cache policies and machines: key, variant, verdict, fill, step.
