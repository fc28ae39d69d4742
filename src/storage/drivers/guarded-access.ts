/**
 * Wraps the transaction of a library so that every use of it first calls `assertOpen`, which throws after its end. A library
 * may otherwise send a late statement on a connection that already serves another transaction.
 */
export function guardAccess<T extends object>(target: T, assertOpen: () => void): T {
  const wrapped = new Map<PropertyKey, { readonly original: unknown; readonly method: unknown }>();
  const guard: T = new Proxy(target, {
    get(_, property) {
      assertOpen();
      // Getters and methods get the real object as `this`: classes with private fields accept no other.
      const value: unknown = Reflect.get(target, property, target);
      if (typeof value !== "function" || property === "constructor" || isFixed(target, property))
        return value;
      const known = wrapped.get(property);
      if (known?.original === value) return known.method;
      const method = callOn(value, target, guard);
      wrapped.set(property, { original: value, method });
      return method;
    },
    set(_, property, value) {
      assertOpen();
      return Reflect.set(target, property, value, target);
    },
    apply(_, receiver, args) {
      assertOpen();
      return Reflect.apply(target as (...all: unknown[]) => unknown, receiver, args);
    },
  });
  return guard;
}

/** A proxy, not a bound function, because functions of libraries can have properties of their own. */
function callOn(method: object, target: object, guard: object): unknown {
  return new Proxy(method, {
    apply: (call, receiver, args) =>
      Reflect.apply(call as (...all: unknown[]) => unknown, receiver === guard ? target : receiver, args),
  });
}

/** A proxy must return the very value of a property that can neither change nor go. */
function isFixed(target: object, property: PropertyKey): boolean {
  const own = Reflect.getOwnPropertyDescriptor(target, property);
  return own !== undefined && own.configurable === false && own.writable === false;
}
