import { ClientLoader } from "../../transport/index.ts";

/** The package @platformatic/kafka, which is there only if the user has installed it. */
export const platformatic = new ClientLoader({
  broker: "Kafka",
  install: ["@platformatic/kafka@1"],
  load: () => import("@platformatic/kafka"),
});
