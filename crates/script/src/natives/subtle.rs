//! The functions below `crypto.subtle` of the prelude.
//!
//! Keys come as the bytes of their forms; what fails is thrown as an `Error` with its words.

use rquickjs::{Array, Ctx, Error, Exception, Function, Value};

use super::files::bounded;
use super::{Result, Table, array, bytes};
use crate::derive::{self, Stretch};
use crate::host::Host;
use crate::subtle::cipher::{self, Aes, Sealed, Way};
use crate::subtle::key::{self, Known, Side};
use crate::subtle::signature;

impl<'js, H: Host> Table<'js, H> {
    /// Web Crypto.
    pub(super) fn subtle(&self) -> Result<()> {
        self.ciphers()?;
        self.signatures()?;
        self.keys()?;
        self.numbers()?;
        self.derived()
    }

    fn ciphers(&self) -> Result<()> {
        native!(self, "aes", |state,
                              ctx,
                              mode: String,
                              way: String,
                              raw: Array<'js>,
                              number: u32| {
            let part = |place| bytes(&ctx, &raw.get::<Value<'js>>(place)?);
            let mode = match mode.as_str() {
                "AES-CBC" => Aes::Cbc,
                "AES-CTR" => Aes::Ctr(number),
                "AES-GCM" => Aes::Gcm(number as usize),
                _ => Aes::Kw,
            };
            let (key, iv, aad) = (part(1)?, part(2)?, part(3)?);
            let parts = Sealed {
                key: &key,
                iv: &iv,
                aad: &aad,
            };
            let done = cipher::aes(mode, Way::named(&way), parts, &part(0)?);
            array(&ctx, &thrown(&ctx, done)?)
        });
        native!(
            self,
            "oaep",
            |state, ctx, way: String, raw: Array<'js>, digest: String| {
                let part = |place| bytes(&ctx, &raw.get::<Value<'js>>(place)?);
                let (key, label) = (part(1)?, part(2)?);
                let done = cipher::oaep(Way::named(&way), &key, (&digest, &label), &part(0)?);
                array(&ctx, &thrown(&ctx, done)?)
            }
        );
        Ok(())
    }

    fn signatures(&self) -> Result<()> {
        native!(
            self,
            "sign",
            |state,
             ctx,
             scheme: String,
             key: Value<'js>,
             digest: String,
             salt: u32,
             data: Value<'js>| {
                let (key, data) = (bytes(&ctx, &key)?, bytes(&ctx, &data)?);
                let scheme = thrown(&ctx, signature::scheme(&scheme, salt))?;
                let made = signature::sign(scheme, &key, &digest, &data);
                array(&ctx, &thrown(&ctx, made)?)
            }
        );
        native!(
            self,
            "verify",
            |state,
             ctx,
             scheme: String,
             key: Value<'js>,
             digest: String,
             salt: u32,
             raw: Array<'js>| {
                let part = |place| bytes(&ctx, &raw.get::<Value<'js>>(place)?);
                let (key, data, made) = (bytes(&ctx, &key)?, part(0)?, part(1)?);
                let scheme = thrown(&ctx, signature::scheme(&scheme, salt))?;
                let is_right = signature::verify(scheme, &key, &digest, (&data, &made));
                thrown(&ctx, is_right)
            }
        );
        Ok(())
    }

    fn keys(&self) -> Result<()> {
        native!(
            self,
            "keyMade",
            |state, ctx, kind: String, bits: u32, exponent: Value<'js>| {
                let exponent = bytes(&ctx, &exponent)?;
                let made = thrown(&ctx, key::make(&kind, bits, &exponent))?;
                let pair = Array::new(ctx.clone())?;
                for (place, known) in made.iter().enumerate() {
                    pair.set(place, known_array(&ctx, known)?)?;
                }
                Ok::<_, Error>(pair)
            }
        );
        native!(
            self,
            "keyRead",
            |state, ctx, side: String, der: Value<'js>| {
                let der = bytes(&ctx, &der)?;
                let known = thrown(&ctx, key::import(Side::named(&side), &der))?;
                known_array(&ctx, &known)
            }
        );
        native!(
            self,
            "keyOfPoint",
            |state, ctx, kind: String, raw: Value<'js>| {
                let raw = bytes(&ctx, &raw)?;
                let known = thrown(&ctx, key::of_point(&kind, &raw))?;
                known_array(&ctx, &known)
            }
        );
        native!(self, "keyPoint", |state, ctx, der: Value<'js>| {
            let der = bytes(&ctx, &der)?;
            array(&ctx, &thrown(&ctx, key::point(&der))?)
        });
        Ok(())
    }

    /// Keys as JWK has them.
    fn numbers(&self) -> Result<()> {
        native!(
            self,
            "keyNumbers",
            |state, ctx, side: String, der: Value<'js>| {
                let der = bytes(&ctx, &der)?;
                let numbers = thrown(&ctx, key::numbers(Side::named(&side), &der))?;
                let made = Array::new(ctx.clone())?;
                for (place, (name, number)) in numbers.iter().enumerate() {
                    let pair = Array::new(ctx.clone())?;
                    pair.set(0, *name)?;
                    pair.set(1, array(&ctx, number)?)?;
                    made.set(place, pair)?;
                }
                Ok::<_, Error>(made)
            }
        );
        native!(
            self,
            "keyOfNumbers",
            |state, ctx, kind: String, pairs: Array<'js>| {
                let number = |pair: Result<Array<'js>>| {
                    let pair = pair?;
                    let raw: Value<'js> = pair.get(1)?;
                    Ok((pair.get(0)?, bytes(&ctx, &raw)?.to_vec()))
                };
                let numbers = pairs.iter::<Array<'js>>().map(number);
                let numbers = numbers.collect::<Result<Vec<(String, Vec<u8>)>>>()?;
                let (_, known) = thrown(&ctx, key::of_numbers(&kind, &numbers))?;
                known_array(&ctx, &known)
            }
        );
        Ok(())
    }

    fn derived(&self) -> Result<()> {
        native!(
            self,
            "agree",
            |state, ctx, own: Value<'js>, other: Value<'js>| {
                let (own, other) = (bytes(&ctx, &own)?, bytes(&ctx, &other)?);
                array(&ctx, &thrown(&ctx, key::agree(&own, &other))?)
            }
        );
        native!(self, "hkdf", |state,
                               ctx,
                               digest: String,
                               raw: Array<'js>,
                               length: usize| {
            let part = |place| bytes(&ctx, &raw.get::<Value<'js>>(place)?);
            let (key, salt, info) = (part(0)?, part(1)?, part(2)?);
            let made = derive::hkdf(&digest, &key, (&salt, &info), length);
            array(&ctx, &thrown(&ctx, made)?)
        });
        native!(
            self,
            "pbkdf2",
            |state, ctx, digest: String, raw: Array<'js>, rounds: u32, length: usize| {
                let part = |place| bytes(&ctx, &raw.get::<Value<'js>>(place)?);
                let (key, salt) = (part(0)?, part(1)?);
                let work = Stretch {
                    password: &key,
                    salt: &salt,
                    rounds,
                    length,
                };
                let made = bounded(&state, |bounds| derive::pbkdf2(&digest, work, bounds));
                array(&ctx, &thrown(&ctx, made)?)
            }
        );
        Ok(())
    }
}

fn thrown<T>(ctx: &Ctx<'_>, done: std::result::Result<T, String>) -> Result<T> {
    done.map_err(|why| Exception::throw_message(ctx, &why))
}

/// A key as an array: kind, bits, exponent, bytes.
fn known_array<'js>(ctx: &Ctx<'js>, known: &Known) -> Result<Array<'js>> {
    let made = Array::new(ctx.clone())?;
    made.set(0, known.kind)?;
    made.set(1, known.bits)?;
    made.set(2, array(ctx, &known.exponent)?)?;
    made.set(3, array(ctx, &known.der)?)?;
    Ok(made)
}
