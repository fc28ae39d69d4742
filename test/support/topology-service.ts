import { command, createBus, event, type Bus } from "sagabox";
import { rabbitmq } from "sagabox/rabbitmq";
import { z } from "zod";

const schema = z.object({ id: z.string() });

/** A service with an unreachable broker, of which only the topology is read. */
export default function app(): Bus {
  const bus = createBus({
    service: "shop",
    database: "postgres://user@127.0.0.1:1/none",
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
