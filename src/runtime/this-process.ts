import { randomToken } from "./random.ts";

/** Names this process among all there ever were: an address or a number of the system may come again. */
export const thisProcess: string = randomToken().slice(0, 16);
