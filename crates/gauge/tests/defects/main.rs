//! Caches and servers with one defect at a time: the gauge must find each and name it, and find
//! nothing where there is none.

mod answers;
mod broken;
mod front;
mod started;
