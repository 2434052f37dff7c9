//! The model of a network link, shared by the simulator and the testbed
