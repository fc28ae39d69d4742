import { command, createBus, event, type Bus } from "sagabox";
import { rabbitmq } from "sagabox/rabbitmq";
import { z } from "zod";

const schema = z.object({ id: z.string() });

/** A service over a broker that nobody can reach: it is only asked what it would make there. */
export default function app(): Bus {
  const bus = createBus({
    service: "shop",
    database: "postgres://nobody@127.0.0.1:1/nowhere",
    transport: rabbitmq({ url: "amqp://127.0.0.1:1", partitions: 2 }),
    log: false,
  });
  bus.on(event("order.placed", { schema, key: ({ id }) => id }), { consumer: "mail" }, () => undefined);
  bus.on(
    command("shop.pack", { schema, key: ({ id }) => id }),
    { consumer: "packer", ordered: false },
    () => undefined,
  );
  return bus;
}
