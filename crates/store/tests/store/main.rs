//! The store on a real disk: what it promises, over every way in which it can end.

mod copies;
mod crash;
mod damage;
mod promises;
mod world;
