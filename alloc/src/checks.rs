//! Random programs that look inside after what they did: the block table, the counters, the pages and the driver's books agree,
//! and memory is out only when nothing would serve.

mod audit;
mod oracle;
mod programs;
mod world;
