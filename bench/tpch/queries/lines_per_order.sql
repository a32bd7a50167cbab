-- Not of TPC-H: a row for each order. As many groups as there are orders.
select l_orderkey, count(*) as lines, sum(l_quantity) as quantity, max(l_comment) as last_comment
from lineitem
group by l_orderkey
