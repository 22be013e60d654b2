//! The item under the attribute: its signature, and its body as tokens.
//!
//! Owns the rules for which shapes of functions the attribute accepts. It never parses the body, so that the
//! attribute also accepts a function whose body is only half typed.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::quote;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream, Parser};
use syn::visit::{self, Visit};
use syn::{
    Attribute, FnArg, GenericArgument, PatType, PathArguments, Signature, Token, Type, TypeParamBound,
    Visibility,
};

/// A function with a body: an `async fn`, the function that `#[async_trait]` has made of one, or a function
/// that `validate` refuses because it is not async.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    defaultness: Option<Token![default]>,
    pub(crate) signature: Signature,
    body: Body,
}

/// The body of a function, and where the user's code is in it.
#[derive(Debug)]
struct Body {
    /// The outermost braces.
    span: Span,
    inner_attributes: TokenStream,
    /// If the code is in a `Box::pin(async move { .. })`: the tokens before the parentheses, the span of the
    /// parentheses, and `async move`.
    boxed: Option<(TokenStream, Span, TokenStream)>,
    code: Group,
}

impl Function {
    /// Parses an item, or returns why it is not a function with a body.
    pub(crate) fn parse(item: TokenStream) -> syn::Result<Self> {
        syn::parse2(item)
    }

    /// The type of the result: what the async function returns.
    pub(crate) fn returns(&self) -> Option<&Type> {
        let syn::ReturnType::Type(_, ty) = &self.signature.output else {
            return None;
        };
        if self.body.boxed.is_some() { boxed_output(ty) } else { Some(ty) }
    }

    /// Whether the function is async: an `async fn`, or a function that returns a boxed future whose code
    /// this crate can find.
    pub(crate) fn is_async(&self) -> bool {
        self.signature.asyncness.is_some() || self.body.boxed.is_some()
    }

    /// All arguments except `self` and the arguments with an `impl Trait` in their type, because such a type
    /// has no name.
    pub(crate) fn named_types(&self) -> impl Iterator<Item = &PatType> {
        self.signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(argument) if Unnameable::of(&argument.ty).opaque.is_none() => Some(argument),
            FnArg::Typed(_) | FnArg::Receiver(_) => None,
        })
    }

    /// The code to guard, with its braces.
    pub(crate) fn code(&self) -> &Group {
        &self.body.code
    }

    /// The function with its code replaced by `guarded`.
    pub(crate) fn with_code(&self, guarded: TokenStream) -> TokenStream {
        let Self { attributes, visibility, defaultness, signature, body } = self;
        let inner_attributes = &body.inner_attributes;
        let content = match &body.boxed {
            None => guarded,
            Some((pin, span, async_move)) => {
                let code = braced(guarded, body.code.span());
                let mut argument = Group::new(Delimiter::Parenthesis, quote!(#async_move #code));
                argument.set_span(*span);
                quote!(#pin #argument)
            }
        };
        let block = braced(quote!(#inner_attributes #content), body.span);
        quote!(#(#attributes)* #visibility #defaultness #signature #block)
    }
}

fn braced(tokens: TokenStream, span: Span) -> Group {
    let mut group = Group::new(Delimiter::Brace, tokens);
    group.set_span(span);
    group
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let defaultness = if input.peek(Token![default]) { Some(input.parse()?) } else { None };
        require_function(input)?;
        let signature: Signature = input.parse()?;
        if input.peek(Token![;]) {
            return Err(syn::Error::new(
                signature.ident.span(),
                "a method without a body has nothing to run: put `#[idempotent]` on it in the impls",
            ));
        }
        let body = body(input)?;
        let body = Body::split(&body, signature.asyncness.is_some());
        Ok(Self { attributes, visibility, defaultness, signature, body })
    }
}

/// The body in its braces. Also finds a body inside the groups without delimiters that `macro_rules!` puts
/// around a block.
fn body(input: ParseStream<'_>) -> syn::Result<Group> {
    let place = input.span();
    let mut token: TokenTree = input.parse()?;
    loop {
        let TokenTree::Group(group) = token else { break };
        match (group.delimiter(), group.stream().into_iter().next()) {
            (Delimiter::Brace, _) => return Ok(group),
            (Delimiter::None, Some(inside)) => token = inside,
            _ => break,
        }
    }
    Err(syn::Error::new(place, "expected the body of the function in braces"))
}

/// Fails for an item that is not a function, with a message that says what to do instead.
fn require_function(input: ParseStream<'_>) -> syn::Result<()> {
    if input.fork().parse::<Signature>().is_ok() {
        return Ok(());
    }
    let ahead = input.fork().call(syn::Ident::parse_any).map(|name| name.to_string());
    Err(input.error(match ahead.as_deref() {
        Ok("impl" | "trait") => "`#[idempotent]` goes on an async method: put it on each that needs it, inside",
        Ok("struct" | "enum" | "union") => {
            "`#[idempotent]` goes on an `async fn`; for a type that is part of a key there is `#[derive(KeyPart)]`"
        }
        _ if input.fork().parse::<syn::Expr>().is_ok() => {
            "expected an `async fn`, found a closure or a block\nhelp: make a function of it, whose arguments are what \
             it captures"
        }
        _ => "`#[idempotent]` goes on an `async fn`",
    }))
}

impl Body {
    fn split(body: &Group, is_async: bool) -> Self {
        let (inner_attributes, code) = split_inner_attributes(body.stream());
        let span = body.span();
        match boxed(&code).filter(|_| !is_async) {
            Some((pin, span_of_argument, async_move, code)) => {
                Self { span, inner_attributes, boxed: Some((pin, span_of_argument, async_move)), code }
            }
            None => Self { span, inner_attributes, boxed: None, code: braced(code, span) },
        }
    }
}

/// Splits `#![..]` from the body. Such an attribute belongs to the function, so it must stay before the code
/// that this macro adds.
fn split_inner_attributes(body: TokenStream) -> (TokenStream, TokenStream) {
    let split = |input: ParseStream<'_>| -> syn::Result<(Vec<Attribute>, TokenStream)> {
        Ok((input.call(Attribute::parse_inner)?, input.parse()?))
    };
    match split.parse2(body.clone()) {
        Ok((attributes, code)) => (quote!(#(#attributes)*), code),
        Err(_) => (TokenStream::new(), body),
    }
}

/// Takes `.. Box::pin(async move { code })` apart: the tokens before the argument, the argument's span,
/// `async move`, and the code.
fn boxed(body: &TokenStream) -> Option<(TokenStream, Span, TokenStream, Group)> {
    let mut tokens: Vec<TokenTree> = body.clone().into_iter().collect();
    let Some(TokenTree::Group(argument)) = tokens.pop() else {
        return None;
    };
    let is_pin = matches!(tokens.last(), Some(TokenTree::Ident(ident)) if ident == "pin");
    if argument.delimiter() != Delimiter::Parenthesis || !is_pin {
        return None;
    }
    let mut future: Vec<TokenTree> = argument.stream().into_iter().collect();
    let Some(TokenTree::Group(code)) = future.pop() else {
        return None;
    };
    let is_async =
        matches!(future.first(), Some(TokenTree::Ident(ident)) if ident == "async") && future.len() <= 2;
    if code.delimiter() != Delimiter::Brace || !is_async {
        return None;
    }
    Some((tokens.into_iter().collect(), argument.span(), future.into_iter().collect(), code))
}

/// Whether a type is a `&mut`, also inside the groups that `macro_rules!` puts around forwarded types.
pub(crate) fn is_mutable(ty: &Type) -> bool {
    match ty {
        Type::Reference(reference) => reference.mutability.is_some(),
        Type::Group(group) => is_mutable(&group.elem),
        Type::Paren(paren) => is_mutable(&paren.elem),
        _ => false,
    }
}

/// The `cfg` attributes of an item or an argument. They decide whether the item or the argument exists.
pub(crate) fn conditions(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"))
}

/// `Output` of `Pin<Box<dyn Future<Output = ..>>>`.
fn boxed_output(ty: &Type) -> Option<&Type> {
    let Type::TraitObject(object) = argument_of(argument_of(ty, "Pin")?, "Box")? else {
        return None;
    };
    object.bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else {
            return None;
        };
        let segment = bound.path.segments.last()?;
        let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
            return None;
        };
        arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(output) if output.ident == "Output" => Some(&output.ty),
            _ => None,
        })
    })
}

fn argument_of<'t>(ty: &'t Type, name: &str) -> Option<&'t Type> {
    let Type::Path(path) = ty else { return None };
    let segment = path.path.segments.last().filter(|segment| segment.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
        return None;
    };
    match arguments.args.first()? {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

/// The first `impl Trait` and the first reference in a type. The type of a recorded result cannot contain
/// either.
#[derive(Default)]
pub(crate) struct Unnameable<'t> {
    pub(crate) opaque: Option<&'t syn::TypeImplTrait>,
    pub(crate) borrowed: Option<&'t syn::TypeReference>,
}

impl<'t> Unnameable<'t> {
    pub(crate) fn of(ty: &'t Type) -> Self {
        let mut types = Self::default();
        types.visit_type(ty);
        types
    }
}

impl<'ast> Visit<'ast> for Unnameable<'ast> {
    fn visit_type_impl_trait(&mut self, ty: &'ast syn::TypeImplTrait) {
        self.opaque.get_or_insert(ty);
    }

    fn visit_type_reference(&mut self, ty: &'ast syn::TypeReference) {
        self.borrowed.get_or_insert(ty);
        visit::visit_type_reference(self, ty);
    }

    // The types of the arguments and the result of a function pointer do not count, because the pointer holds
    // no value of these types.
    fn visit_type_fn_ptr(&mut self, _: &'ast syn::TypeFnPtr) {}
}
