//! Linux for mpip: TUN, UDP, netlink, privileges
