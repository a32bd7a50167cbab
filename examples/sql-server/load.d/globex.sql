SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), avg(l_discount), count(*) FROM lineitem GROUP BY l_returnflag, l_linestatus;
SELECT o_orderpriority, count(DISTINCT o_custkey) FROM orders GROUP BY o_orderpriority;
SELECT n_name, sum(l_extendedprice) FROM lineitem JOIN supplier ON l_suppkey = s_suppkey JOIN nation ON s_nationkey = n_nationkey GROUP BY n_name;
