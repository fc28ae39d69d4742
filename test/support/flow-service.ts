import { createBus, type Bus } from "sagabox";
import { orderFlow } from "./flows.ts";

/** The application that watches the flow of orders, as the command line loads it. */
export default function application(): Bus {
  const bus = createBus({ service: "orders", database: "postgres://user@127.0.0.1:1/none", log: false });
  bus.flows.watch(orderFlow);
  return bus;
}
