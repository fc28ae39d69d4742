import { createBus } from "sagabox";
import { fileStore } from "sagabox/claim-check";
import { Drawn, large } from "../support/stores/payload-contracts.ts";

// Publishes something large and is killed before its transaction can commit.
const [url = "", folder = ""] = process.argv.slice(2);
const bus = createBus({
  service: "killed",
  database: url,
  log: false,
  claimCheck: { store: fileStore({ folder }) },
});
await bus.transaction(async (tx) => {
  await tx.publish(Drawn, large());
  process.kill(process.pid, "SIGKILL");
});
