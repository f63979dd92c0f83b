"""Nodes of a cluster. Which test shows what, by scenario:

========================================  =======================================  ===============
scenario                                  simulated: ``test_scenarios``            real processes
========================================  =======================================  ===============
two nodes from the start                  two_nodes_from_the_start                 consul_crawl
a node joins                              node_joins, node_that_joins_takes_...    growth
a node leaves                             node_leaves, node_that_leaves_gives_...  growth
a node leaves and returns at once         node_leaves_and_returns_at_once
a node hangs while it leaves              node_is_frozen_while_it_leaves
killed, and back after 60 s               killed_node_returns_after_a_minute       chaos_nodes
killed and forgotten                      killed_node_is_forgotten                 ring_command
Redis frozen, or gone for 150 s           redis_in_trouble                         chaos_redis
Consul gone                               consul_gone                              chaos_consul
Consul wiped while nodes run              consul_wiped_while_nodes_run             chaos_consul
Consul wiped while no node runs           consul_wiped_while_nodes_are_stopped     identity_seed
the same id, the same Redis               same_id_and_same_redis_are_refused       same_redis
the same JOBDIR                                                                    restart [1]
a wall clock an hour ahead                wall_clock_an_hour_ahead
an address without room                   node_leaves_while_hosts_wait_for_...
robots.txt on hosts of other nodes        robots_txt_on_the_hosts_of_other_nodes   static_nodes
frozen for 75 s                           node_frozen_for_75_seconds               chaos_partition
all killed at once                        all_nodes_killed_at_once
killed in mid hand-over                   killed_in_mid_hand_over                  chaos_nodes
all of it by chance                       ten_minutes_of_random_churn, ``churn``
========================================  =======================================  ===============

[1] ``tests/whole_crawls``
"""
