-- Not of TPC-H: every order line, dearest first. The whole table passes through a sort.
select l_orderkey, l_linenumber, l_extendedprice, l_shipdate, l_shipinstruct, l_comment
from lineitem
order by l_extendedprice desc, l_orderkey, l_linenumber
