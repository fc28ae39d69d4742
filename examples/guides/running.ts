// #region app
import { createBus } from "sagabox";
import { billOrders } from "./consuming.ts";

export const bus = createBus({ service: "billing" }); // DATABASE_URL says where
billOrders(bus);
// #endregion app

// #region run
export async function runUntilSignal(): Promise<void> {
  await bus.run({ port: 8000 });
  const stop = async (): Promise<void> => {
    const { clean } = await bus.stop();
    process.exitCode = clean ? 0 : 1;
  };
  process.once("SIGTERM", () => void stop());
  process.once("SIGINT", () => void stop());
}
// #endregion run

// #region republish
export async function sendTheLastHourAgain(topic: string): Promise<number> {
  const to = new Date();
  const from = new Date(to.getTime() - 3_600_000);
  const { count } = await bus.republish({ from, to, topic, ratePerSecond: 500 });
  return count;
}
// #endregion republish
