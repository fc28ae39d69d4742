import { canarySuite } from "../support/canary-suite.ts";

canarySuite(() => ({}));
