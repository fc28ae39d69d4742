import os
import sys

import psycopg
from psycopg.types.json import Jsonb


# #region python
def place_order(connection: psycopg.Connection, order_id: str, cents: int, traceparent: str) -> str:
    with connection.transaction():
        connection.execute("insert into guide_python_order (id, cents) values (%s, %s)", (order_id, cents))
        row = connection.execute(
            """select sagabox.publish(type => 'guide.order.placed', key => %s, data => %s,
                                      source => 'importer', traceparent => %s)""",
            (order_id, Jsonb({"orderId": order_id, "cents": cents}), traceparent),
        ).fetchone()
    return row[0]
# #endregion python


if __name__ == "__main__":
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        print(place_order(connection, sys.argv[1], int(sys.argv[2]), sys.argv[3]))
