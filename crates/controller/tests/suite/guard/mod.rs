//! Guard mode: what it makes of Services, its policy and its webhook.

mod demand;
mod life;
mod policy;
mod webhook;
